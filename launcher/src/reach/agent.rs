//! An allocator that is there already: a `torchlift serve` that a service manager keeps up. It is dialled.

use std::fmt;
use std::io;
use std::sync::Arc;

use torchlift_schema::ChannelAddr;

use crate::channel::BoxStream;
use crate::channel::dial::Dialler;
use crate::keys::Credentials;

/// An allocator that is dialled.
#[derive(Clone)]
pub struct Agent {
    addr: ChannelAddr,
    dialler: Dialler,
    token: Option<Arc<str>>,
}

/// Without the secret.
impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Agent {
    /// The one that serves this address.
    pub fn at(addr: ChannelAddr) -> Self {
        Self { addr, dialler: Dialler::plain(), token: None }
    }

    /// The same, where the secret of its `--token-file` has to be shown: over `tcp:`.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(Arc::from(token)), ..self }
    }

    /// The same, where a client's certificate has to be shown: over `tls:`.
    #[must_use]
    pub fn with_identity(self, identity: Arc<Credentials>) -> Self {
        Self { dialler: Dialler::new(identity), ..self }
    }

    pub(super) async fn connect(&self) -> io::Result<BoxStream> {
        self.dialler.dial(&self.addr).await
    }

    pub(super) fn refusal(&self, error: &io::Error) -> Option<String> {
        self.dialler.refusal(&self.addr, error)
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}
