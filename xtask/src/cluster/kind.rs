//! `[kind.NAME]`: what hosts have in common for a build.

use torchlift_schema::VariantId;

use super::code;
use super::expand::Expander;
use super::fields::{Fields, Text};
use super::findings::{meant, nearest};
use super::gpu;
use super::host_path::HostPath;
use super::keys;
use super::model::{Container, Kind, LibtorchChoice};
use super::name;
use super::node::{Node, Value};
use super::variables::{self, Scope};

/// Container engines whose command line is known here.
const ENGINES: [&str; 2] = ["podman", "docker"];

/// A kind with what each of its hosts still has to expand.
#[derive(Debug)]
pub(super) struct KindTable<'a> {
    pub(super) kind: Kind,
    pub(super) before: Vec<(Text<'a>, HostPath)>,
    pub(super) after: Vec<(Text<'a>, HostPath)>,
}

impl KindTable<'_> {
    /// The kind of a file without kinds.
    pub(super) fn unnamed() -> Self {
        Self { kind: blank(""), before: Vec::new(), after: Vec::new() }
    }
}

fn blank(name: &str) -> Kind {
    Kind {
        name: name.to_owned(),
        target: None,
        libtorch: LibtorchChoice::None,
        features: Vec::new(),
        default_features: true,
        rustflags: Vec::new(),
        build_env: Default::default(),
        gpus: Vec::new(),
        container: None,
        build_on: None,
        places: Default::default(),
    }
}

/// Reads one kind; none: it is no table, or has no name that can be used.
pub(super) fn read<'a>(kind_name: Text<'a>, node: &'a Node, expander: &Expander<'a>) -> Option<KindTable<'a>> {
    let is_named = name::check_table(kind_name, "kind", expander.findings);
    let fields = Fields::new(node, keys::KIND, expander.findings)?;
    let mut kind = blank(kind_name.value);
    kind.target = fields.text("target").filter(|text| is_target(*text, &fields)).map(|text| text.value.to_owned());
    kind.libtorch = fields.text("libtorch").map_or(LibtorchChoice::None, |text| libtorch(text, expander));
    kind.features = features(&fields);
    kind.default_features = fields.boolean("default_features").unwrap_or(true);
    kind.rustflags = fields.words("rustflags");
    kind.build_env = variables::map(&fields, "build_env", Scope::Build);
    kind.gpus = gpu::capabilities(&fields);
    kind.container = fields.get("container").and_then(|node| container(node, &fields));
    kind.build_on = fields.text("build_on").map(|text| text.value.to_owned());
    kind.places = node.places();
    if let (Some(_), Some(second)) = (fields.get("container"), fields.get("build_on")) {
        expander.findings.error(
            code::EXCLUSIVE_KEYS,
            &second.place,
            format!("kind `{}` has both `container` and `build_on`", kind_name.value),
            "leave one of them out",
        );
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    if let Some(path) =
        fields.get("library_path").and_then(|node| Fields::new(node, keys::LIBRARY_PATH, expander.findings))
    {
        before = library_path(&path, "before", expander);
        after = library_path(&path, "after", expander);
    }
    is_named.then_some(KindTable { kind, before, after })
}

/// Whether a text looks like the triple of a Linux target.
pub(super) fn is_target(text: Text<'_>, fields: &Fields<'_>) -> bool {
    let parts: Vec<&str> = text.value.split('-').collect();
    let is_word =
        |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
    let is_triple = (3..=4).contains(&parts.len()) && parts.iter().all(is_word);
    let is_linux = parts.get(parts.len().saturating_sub(2)) == Some(&"linux");
    let fault = match (is_triple, is_linux) {
        (true, true) => return true,
        (true, false) => "is not of Linux, and ranks run on Linux only",
        (false, _) => "is no target triple",
    };
    let known = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
    let remedy = match nearest(text.value, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write one such as `{}`", known[0]),
    };
    fields.findings.error(code::BAD_TARGET, text.place, format!("`{}` {fault}", text.value), remedy);
    false
}

fn libtorch(text: Text<'_>, expander: &Expander<'_>) -> LibtorchChoice {
    let Some(value) = expander.here(text) else { return LibtorchChoice::None };
    if value == "auto" {
        return LibtorchChoice::Auto;
    }
    if value.starts_with('/') {
        return LibtorchChoice::Path(super::host::simplest(&value));
    }
    match value.parse::<VariantId>() {
        Ok(id) => LibtorchChoice::Variant(id),
        Err(_) => {
            let remedy = match nearest(&value, ["auto"]) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write `\"auto\"`, a variant such as `\"precompiled/cu128\"`, or an absolute path".to_owned(),
            };
            expander.findings.error(
                code::BAD_LIBTORCH,
                text.place,
                format!("`{value}` is neither `auto`, nor `<family>/<name>`, nor an absolute path"),
                remedy,
            );
            LibtorchChoice::None
        }
    }
}

fn features(fields: &Fields<'_>) -> Vec<String> {
    let list = fields.texts("features").unwrap_or_default();
    fields.unique(&list);
    let is_feature = |text: &&Text<'_>| {
        let word = |c: char| c.is_alphanumeric() || "_-+./?".contains(c);
        let is = text.value.chars().all(word) && !text.value.starts_with(['-', '+', '.']);
        if !is {
            fields.findings.error(
                code::BAD_NAME,
                text.place,
                format!("`{}` cannot be a cargo feature", text.value),
                "write one feature a string, without spaces and commas",
            );
        }
        is
    };
    list.iter().filter(is_feature).map(|text| text.value.to_owned()).collect()
}

fn container(node: &Node, kind: &Fields<'_>) -> Option<Container> {
    if let Value::String(image) = &node.value {
        kind.findings.error(
            code::WRONG_TYPE,
            &node.place,
            "`container` must be a table, not a string",
            format!("write `container = {{ engine = \"podman\", image = {image:?} }}`"),
        );
        return None;
    }
    let fields = Fields::new(node, keys::CONTAINER, kind.findings)?;
    let engine = engine(&fields);
    let image = required(&fields, "image", "name the image to build in");
    let image = image.filter(|text| {
        let is_image = !text.value.starts_with('-') && !text.value.contains(char::is_whitespace);
        if !is_image {
            let message = format!("`{}` cannot be an image", text.value);
            kind.findings.error(code::BAD_VALUE, text.place, message, "write the image's name or digest");
        }
        is_image
    });
    let args = fields.words("args");
    let (engine, engine_args) = engine?;
    Some(Container { engine, engine_args, image: image?.value.to_owned(), args })
}

/// The engine and its own options: one word, or an array whose first word is the engine.
fn engine(fields: &Fields<'_>) -> Option<(String, Vec<String>)> {
    let remedy = "write `engine = \"podman\"` or `\"docker\"`";
    let words = match fields.get("engine").map(|node| &node.value) {
        Some(Value::Array(_)) => fields.texts("engine").unwrap_or_default(),
        _ => required(fields, "engine", remedy).into_iter().collect(),
    };
    let Some((first, options)) = words.split_first() else {
        if let Some(node) = fields.get("engine").filter(|node| matches!(&node.value, Value::Array(of) if of.is_empty()))
        {
            fields.findings.error(code::EMPTY_VALUE, &node.place, "`engine` is empty", remedy);
        }
        return None;
    };
    let name = first.value.rsplit('/').next().unwrap_or_default();
    if !ENGINES.contains(&name) {
        let remedy = meant(first.value, ENGINES, "engines");
        let message = format!("`{}` is no container engine that is known here", first.value);
        fields.findings.error(code::BAD_VALUE, first.place, message, remedy);
        return None;
    }
    Some((first.value.to_owned(), options.iter().map(|option| option.value.to_owned()).collect()))
}

/// A text that must be there.
pub(super) fn required<'a>(fields: &Fields<'a>, key: &str, remedy: &str) -> Option<Text<'a>> {
    if fields.get(key).is_none() {
        fields.missing(key, remedy);
    }
    fields.text(key)
}

/// One half of `library_path`: checked as far as no host is needed.
fn library_path<'a>(fields: &Fields<'a>, key: &str, expander: &Expander<'_>) -> Vec<(Text<'a>, HostPath)> {
    let mut elements = Vec::new();
    for text in fields.texts(key).unwrap_or_default() {
        let Some(path) = expander.read(text) else { continue };
        let expanded = path.expand("name", false);
        let fault = if let Some(bad) = expanded.chars().find(|c| ":;$".contains(*c)) {
            Some(format!("the loader would split or expand `{}` at `{bad}`", text.value))
        } else if !path.is_home && !expanded.starts_with('/') {
            Some(format!("`{}` is not absolute, and the loader would search the working directory", text.value))
        } else {
            None
        };
        match fault {
            Some(message) => expander.findings.error(
                code::BAD_LIBRARY_PATH,
                text.place,
                message,
                "write one absolute folder a string, without `:`, `;` and `$`",
            ),
            None => elements.push((text, path)),
        }
    }
    elements
}
