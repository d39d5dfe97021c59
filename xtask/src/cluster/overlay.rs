//! How `cluster.local.toml` lies over `cluster.toml`.
//!
//! Tables are merged key by key, to any depth; every other value, arrays too, is replaced. `reach` is one value and
//! replaced whole. Of two keys that exclude each other, the overlay's drives out the file's. `[[host]]` is merged by
//! host name, after ranges are expanded ([`super::host`]); `[[accept]]` is added to.

use super::node::{Node, Table, Value};

/// Keys that are one value, whatever type they have.
const WHOLE: [&str; 1] = ["reach"];

/// Keys of one table of which only one may stand, with the tables they are in.
const EITHER: [(&str, [&str; 2]); 2] = [("job", ["bin", "example"]), ("kind", ["container", "build_on"])];

/// Lays a node over another; places stay those of the values that win.
pub(super) fn merge(base: &mut Node, over: Node) {
    let table_name = base.place.key.clone().unwrap_or_default();
    match (&mut base.value, over) {
        (Value::Table(base), Node { value: Value::Table(over), .. }) => {
            drive_out(base, &over, &table_name);
            for entry in over.entries {
                let existing = base.entries.iter_mut().find(|other| other.key == entry.key);
                match existing {
                    Some(existing) if WHOLE.contains(&entry.key.as_str()) => *existing = entry,
                    Some(existing) => {
                        existing.place = entry.place;
                        merge(&mut existing.node, entry.node);
                    }
                    None => base.entries.push(entry),
                }
            }
        }
        (_, over) => *base = over,
    }
}

fn drive_out(base: &mut Table, over: &Table, table_name: &str) {
    let Some((parent, _)) = table_name.split_once('.') else { return };
    for (_, keys) in EITHER.iter().filter(|(table, _)| *table == parent) {
        if table_name.matches('.').count() == 1 && keys.iter().any(|key| over.get(key).is_some()) {
            for key in keys {
                base.remove(key);
            }
        }
    }
}
