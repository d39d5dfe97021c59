//! Names and numbers of types, as the published system gives them.
//!
//! A type has a name (by default the path of its module and its own), a hash of that name, and a port that is made of the
//! hash. Ours keep the published names, whatever crate they live in now, so that the published hashes hold.
//! Must not be used to tell types apart where a wrong one does harm: nobody enforces that hashes differ.

#![expect(unsafe_code, reason = "the published trait has a function that takes an untyped pointer")]

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A type with a name that is the same in every program.
pub trait Named: Sized + 'static {
    /// The globally unique name of the type.
    fn typename() -> &'static str;

    /// The CityHash64 of the name, without a seed.
    fn typehash() -> u64 {
        cityhasher::hash(Self::typename())
    }

    /// What the type is within this program; another one in every program.
    fn typeid() -> TypeId {
        TypeId::of::<Self>()
    }

    /// The port of the type: its hash, lifted into the range 2^63 to 2^64 - 1.
    fn port() -> u64 {
        Self::typehash() | 1 << 63
    }

    /// The name of an enum's variant; none for what is no enum.
    fn arm(&self) -> Option<&'static str> {
        None
    }

    /// [`Self::arm`] of what an untyped pointer points to.
    ///
    /// # Safety
    /// The pointer has to be of a living, aligned and initialised value of this very type, which nobody changes meanwhile.
    unsafe fn arm_unchecked(value: *const ()) -> Option<&'static str> {
        // SAFETY: the caller vouches for the pointer.
        unsafe { &*value.cast::<Self>() }.arm()
    }
}

/// Types whose name is written once: `named!(Type = "the::published::Name")`, for an enum with its variants' patterns behind.
macro_rules! named {
    ($type:ty = $name:expr) => {
        impl $crate::named::Named for $type {
            fn typename() -> &'static str {
                $name
            }
        }
    };
    ($type:ty = $name:expr, [$($arm:ident),+ $(,)?]) => {
        impl $crate::named::Named for $type {
            fn typename() -> &'static str {
                $name
            }

            fn arm(&self) -> Option<&'static str> {
                Some(match self {
                    $(Self::$arm { .. } => stringify!($arm),)+
                })
            }
        }
    };
}
pub(crate) use named;

/// Types of the language go by their bare names.
macro_rules! named_by_itself {
    ($($type:ty),+) => { $(named!($type = stringify!($type));)+ };
}

named_by_itself!((), bool, char, i8, u8, i16, u16, i32, u32, i64, u64, i128, u128, isize, usize, f32, f64, String);
named!(&'static str = "&str");
named!(Duration = "std::time::Duration");

/// Types that are made of others.
macro_rules! named_of {
    ($type:ident<$($of:ident),+>) => {
        impl<$($of: Named),+> Named for $type<$($of),+> {
            fn typename() -> &'static str {
                interned::<Self>(|| format!("{}<{}>", stringify!($type), [$($of::typename()),+].join(", ")))
            }
        }
    };
    (($($of:ident),+)) => {
        impl<$($of: Named),+> Named for ($($of,)+) {
            fn typename() -> &'static str {
                interned::<Self>(|| format!("({})", [$($of::typename()),+].join(", ")))
            }
        }
    };
}

named_of!(Option<T>);
named_of!(Vec<T>);
named_of!(Result<T, E>);
named_of!((A, B));
named_of!((A, B, C));
named_of!((A, B, C, D));

/// The one copy of a made name. It is never freed; a program has as many as it has such types.
fn interned<T: 'static>(make: impl FnOnce() -> String) -> &'static str {
    static NAMES: Mutex<BTreeMap<TypeId, &'static str>> = Mutex::new(BTreeMap::new());
    let id = TypeId::of::<T>();
    let lock = || NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = lock().get(&id) {
        return name;
    }
    // Not under the lock: the name of what it is made of may have to be made too.
    let name = make();
    lock().entry(id).or_insert_with(|| Box::leak(name.into_boxed_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The published implementation and this one hash alike; the numbers were computed with the published crate.
    #[test]
    fn names_of_the_language_have_the_published_hashes() {
        let hashes = [
            (String::typename(), String::typehash(), "String", 3_947_244_799_002_047_352),
            (<()>::typename(), <()>::typehash(), "()", 738_653_933_191_750_139),
            (u64::typename(), u64::typehash(), "u64", 10_185_497_781_572_358_262),
            (Option::<String>::typename(), Option::<String>::typehash(), "Option<String>", 8_330_211_477_943_891_072),
            (Vec::<String>::typename(), Vec::<String>::typehash(), "Vec<String>", 2_068_770_916_775_486_338),
        ];
        for (name, hash, wanted_name, wanted_hash) in hashes {
            assert_eq!((name, hash), (wanted_name, wanted_hash));
        }
        assert_eq!(String::port(), 13_170_616_835_856_823_160);
    }

    #[test]
    fn names_of_made_types_hold_those_of_their_parts() {
        assert_eq!(<(u64, String, Option<isize>)>::typename(), "(u64, String, Option<isize>)");
        assert_eq!(Result::<Vec<Option<u8>>, &'static str>::typename(), "Result<Vec<Option<u8>>, &str>");
        assert_eq!(Duration::typename(), "std::time::Duration");
        assert!(std::ptr::eq(Vec::<u16>::typename(), Vec::<u16>::typename()), "one copy of a name");
    }

    #[test]
    fn names_are_made_by_many_threads_at_once() {
        let names = || (Vec::<Vec<Vec<i128>>>::typename(), Option::<Vec<Vec<i128>>>::typename());
        let threads: Vec<_> = (0..16).map(|_| std::thread::spawn(names)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), ("Vec<Vec<Vec<i128>>>", "Option<Vec<Vec<i128>>>"));
        }
    }

    #[test]
    fn a_type_that_is_no_enum_has_no_arm() {
        let text = String::from("x");
        assert_eq!(text.arm(), None);
        // SAFETY: it points to `text`, which lives.
        assert_eq!(unsafe { String::arm_unchecked((&raw const text).cast()) }, None);
        assert_ne!(String::typeid(), u64::typeid());
    }
}
