//! The codes of the findings about a cluster file: stable names, listed in `docs/cluster-file.md`.
//!
//! None of them can be accepted: the file is there to be mended.

/// The file cannot be read, or is larger than any cluster file.
pub const CLUSTER_UNREADABLE: &str = "cluster-unreadable";
/// The file is not UTF-8.
pub const NOT_UTF8: &str = "not-utf8";
/// The file is not TOML at this place.
pub const TOML_SYNTAX: &str = "toml-syntax";
/// A key or table stands twice.
pub const DUPLICATE_KEY: &str = "duplicate-key";
/// `schema` is missing, newer, or no version.
pub const SCHEMA_VERSION: &str = "schema-version";
/// A key that the format does not have.
pub const UNKNOWN_KEY: &str = "unknown-key";
/// A value of the wrong type.
pub const WRONG_TYPE: &str = "wrong-type";
/// A required key is missing.
pub const MISSING_KEY: &str = "missing-key";
/// An empty string, array or table where that means nothing.
pub const EMPTY_VALUE: &str = "empty-value";
/// A value that its key does not take.
pub const BAD_VALUE: &str = "bad-value";
/// Two keys that exclude each other.
pub const EXCLUSIVE_KEYS: &str = "exclusive-keys";
/// The same value twice in one list.
pub const DUPLICATE_VALUE: &str = "duplicate-value";
/// A name of a host, job, kind, package or the like that cannot be one.
pub const BAD_NAME: &str = "bad-name";
/// A host name with upper-case letters (a warning).
pub const NAME_CASE: &str = "name-case";
/// Two names that would be one folder or one host.
pub const NAME_COLLISION: &str = "name-collision";
/// A host range that cannot be expanded.
pub const BAD_RANGE: &str = "bad-range";
/// More hosts than one cluster may have.
pub const TOO_MANY_HOSTS: &str = "too-many-hosts";
/// A host stands twice.
pub const DUPLICATE_HOST: &str = "duplicate-host";
/// A host that the file does not have.
pub const UNKNOWN_HOST: &str = "unknown-host";
/// A kind that the file does not have.
pub const UNKNOWN_KIND: &str = "unknown-kind";
/// A job that the file does not have.
pub const UNKNOWN_JOB: &str = "unknown-job";
/// No host is left after `--host` and `--exclude`.
pub const NO_HOST: &str = "no-host";
/// A path of the wrong form.
pub const BAD_PATH: &str = "bad-path";
/// A local host's path that is no folder.
pub const PATH_MISSING: &str = "path-missing";
/// `${VAR}` or `~` of a variable that is not set.
pub const UNSET_VARIABLE: &str = "unset-variable";
/// `{…}` or `$…` that is no placeholder.
pub const BAD_PLACEHOLDER: &str = "bad-placeholder";
/// A `reach` that says no way to a host.
pub const BAD_REACH: &str = "bad-reach";
/// A variable's name or value that cannot be one.
pub const BAD_VARIABLE: &str = "bad-variable";
/// A variable that Torchlift sets itself.
pub const RESERVED_VARIABLE: &str = "reserved-variable";
/// A variable that another table sets over it (a warning).
pub const SHADOWED_VARIABLE: &str = "shadowed-variable";
/// A device that is neither an index nor a UUID.
pub const BAD_DEVICE: &str = "bad-device";
/// A GPU capability that cannot be read.
pub const BAD_CAPABILITY: &str = "bad-capability";
/// An element that the loader's search path cannot hold.
pub const BAD_LIBRARY_PATH: &str = "bad-library-path";
/// A `libtorch` that is none of its three forms.
pub const BAD_LIBTORCH: &str = "bad-libtorch";
/// A target that is no Linux triple.
pub const BAD_TARGET: &str = "bad-target";
/// An `[[accept]]` of what cannot be accepted.
pub const BAD_ACCEPT: &str = "bad-accept";

/// Every code with its meaning, for the docs and their test.
pub const TABLE: &[(&str, &str)] = &[
    (CLUSTER_UNREADABLE, "the file cannot be read, or is larger than 4 MiB"),
    (NOT_UTF8, "the file is not UTF-8"),
    (TOML_SYNTAX, "the file is not TOML at this place"),
    (DUPLICATE_KEY, "a key or table stands twice"),
    (SCHEMA_VERSION, "`schema` is missing, newer, or no version"),
    (UNKNOWN_KEY, "a key that the format does not have"),
    (WRONG_TYPE, "a value of the wrong type"),
    (MISSING_KEY, "a required key is missing"),
    (EMPTY_VALUE, "an empty string, array or table where that means nothing"),
    (BAD_VALUE, "a value that its key does not take"),
    (EXCLUSIVE_KEYS, "two keys that exclude each other"),
    (DUPLICATE_VALUE, "the same value twice in one list"),
    (BAD_NAME, "a name that cannot be one"),
    (NAME_CASE, "a host name with upper-case letters (a warning)"),
    (NAME_COLLISION, "two names that would be one folder or one host"),
    (BAD_RANGE, "a host range that cannot be expanded"),
    (TOO_MANY_HOSTS, "more than 65,536 hosts"),
    (DUPLICATE_HOST, "a host stands twice"),
    (UNKNOWN_HOST, "a host that the file does not have"),
    (UNKNOWN_KIND, "a kind that the file does not have"),
    (UNKNOWN_JOB, "a job that the file does not have"),
    (NO_HOST, "no host is left after `--host` and `--exclude`"),
    (BAD_PATH, "a path of the wrong form"),
    (PATH_MISSING, "a local host's `path` is no folder"),
    (UNSET_VARIABLE, "`${VAR}` or `~` of a variable that is not set"),
    (BAD_PLACEHOLDER, "`{…}` or `$…` that is no placeholder"),
    (BAD_REACH, "a `reach` that says no way to a host"),
    (BAD_VARIABLE, "a variable's name or value that cannot be one"),
    (RESERVED_VARIABLE, "a variable that Torchlift sets itself"),
    (SHADOWED_VARIABLE, "a variable that another table sets over it (a warning)"),
    (BAD_DEVICE, "a device that is neither an index nor a UUID"),
    (BAD_CAPABILITY, "a GPU capability that cannot be read"),
    (BAD_LIBRARY_PATH, "an element that the loader's search path cannot hold"),
    (BAD_LIBTORCH, "a `libtorch` that is none of its three forms"),
    (BAD_TARGET, "a target that is no Linux triple"),
    (BAD_ACCEPT, "an `[[accept]]` of what cannot be accepted"),
];
