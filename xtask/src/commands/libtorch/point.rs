//! `libtorch use`: the pointer that says which variant is taken before the others.

use torchlift_schema::{VariantId, exit_code};

use super::{Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::active::{self, ActiveError};
use crate::report::fetch::FetchReport;
use crate::workspace::offer;

/// Arguments of `libtorch use`.
#[derive(Debug, clap::Args)]
pub(super) struct UseArgs {
    /// The variant
    #[arg(value_name = "ID")]
    id: VariantId,
    /// Write `.active.<NAME>`, which counts where `FDL_LIBTORCH_CASE` is NAME [default: that variable, else none]
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
}

pub(super) fn run(args: &UseArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let failed = |error: ActiveError| {
        let hint = error.hint(&scene.context.invocation);
        CommandError::new(exit_code::BUILD, format!("`{}` is not what is used now", args.id)).because(error).hint(hint)
    };
    let case = match &args.case {
        Some(case) => active::check_case(case).map(|()| Some(case.clone())),
        None => active::case(&scene.env),
    };
    let case = case.map_err(failed)?;
    let stores = scene.stores(None);
    let Some(root) = stores.resolve(&args.id) else {
        let stored: Vec<String> = stores.list().into_iter().map(|stored| stored.id.to_string()).collect();
        let names: Vec<&str> = stored.iter().map(String::as_str).collect();
        let invocation = &scene.context.invocation;
        let hint = match names.is_empty() {
            true => format!("`{invocation} libtorch fetch` gets one"),
            false => offer("variants", args.id.as_str(), &names),
        };
        return Err(CommandError::new(exit_code::USAGE, format!("no store has `{}`", args.id)).hint(hint));
    };
    let place = active::place(&stores, case.as_deref(), &args.id).unwrap_or(&root);
    let file = active::write(place, case.as_deref(), &args.id).map_err(failed)?;
    note(&mut FetchReport::new(), format!("`{file}` names `{}` now", args.id));
    print_line(root.as_str())?;
    Ok(exit_code::OK)
}
