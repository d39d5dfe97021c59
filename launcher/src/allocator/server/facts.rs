//! What this host is, for whoever asks an allocator: gathered off the loop, and kept for a while.
//!
//! Must not know how facts are gathered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long facts are good for: gathering them may take seconds where there are many cards, and who asks often learns nothing
/// new.
const FRESH: Duration = Duration::from_secs(60);

/// Gathers facts, or says why there are none.
pub(crate) type Gather = dyn Fn() -> Result<String, String> + Send + Sync;

/// Facts of this host.
#[derive(Clone)]
pub(crate) struct Facts {
    gather: Arc<Gather>,
    kept: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").finish_non_exhaustive()
    }
}

impl Facts {
    /// Facts that are gathered in this way, which may block.
    pub(crate) fn new(gather: Arc<Gather>) -> Self {
        Self { gather, kept: Arc::default() }
    }

    /// The facts, of the last minute.
    pub(super) async fn text(&self) -> Result<Bytes, String> {
        // In a task of its own: whoever asks and hangs up again and again starts it once.
        let facts = self.clone();
        tokio::spawn(async move { facts.fresh().await }).await.map_err(|error| error.to_string())?
    }

    async fn fresh(&self) -> Result<Bytes, String> {
        let mut kept = self.kept.lock().await;
        if let Some((since, text)) = &*kept
            && since.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let gather = Arc::clone(&self.gather);
        let text = tokio::task::spawn_blocking(move || gather()).await.map_err(|error| error.to_string())??;
        Ok(kept.insert((Instant::now(), text.into())).1.clone())
    }
}
