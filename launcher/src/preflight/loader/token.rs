//! Dynamic string tokens: `$ORIGIN`, `$LIB` and `$PLATFORM`, with or without braces.

/// What the tokens stand for. A path with a token that has no value is dropped by the loader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a> {
    pub(super) origin: Option<&'a str>,
    pub(super) lib: &'a str,
    pub(super) platform: Option<&'a str>,
}

/// `text` with its tokens replaced; none when one has no value. What is no token stays as it is.
pub(super) fn expand(text: &str, tokens: Tokens<'_>) -> Option<String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let values = [("ORIGIN", tokens.origin), ("LIB", Some(tokens.lib)), ("PLATFORM", tokens.platform)];
        match values.iter().find_map(|(name, value)| Some((after(rest, name)?, value))) {
            Some((tail, value)) => {
                expanded.push_str((*value)?);
                rest = tail;
            }
            None => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    Some(expanded)
}

/// What follows the token `name` at the start of `text`, which stood behind a `$`.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    if let Some(braced) = text.strip_prefix('{') {
        return braced.strip_prefix(name)?.strip_prefix('}');
    }
    let tail = text.strip_prefix(name)?;
    (!tail.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_replaced_with_and_without_braces_and_nothing_else_is() {
        let tokens = Tokens { origin: Some("/o é"), lib: "lib64", platform: None };
        assert_eq!(expand("$ORIGIN/../$LIB", tokens).as_deref(), Some("/o é/../lib64"));
        assert_eq!(expand("${ORIGIN}x:${LIB}", tokens).as_deref(), Some("/o éx:lib64"));
        assert_eq!(expand("$ORIGINS/$HOME/$", tokens).as_deref(), Some("$ORIGINS/$HOME/$"));
        assert_eq!(expand("${ORIGIN/x", tokens).as_deref(), Some("${ORIGIN/x"));
        assert_eq!(expand("/x/$PLATFORM", tokens), None);
    }
}
