//! A call of one of our functions as PostgreSQL makes it, for functions that take values of any type.

use super::spi::Arg;
use pgrx::datum::DatumWithOid;
use pgrx::{PgMemoryContexts, pg_sys};
use std::cell::RefCell;

/// # Safety
/// `call` is a running call with more than `n` arguments.
pub(super) unsafe fn argument(call: pg_sys::FunctionCallInfo, n: usize) -> pg_sys::Datum {
    // SAFETY: by the caller's promise.
    unsafe { (*(*call).args.as_ptr().add(n)).value }
}

/// The arguments of a call from one on, none of which is NULL, with their types. They live as long as the call.
pub fn arguments<'a>(call: pg_sys::FunctionCallInfo, from: usize) -> Vec<Arg<'a>> {
    // SAFETY: `call` is what PostgreSQL called us with, a strict function.
    unsafe {
        let count = (*call).nargs as usize;
        (from..count)
            .map(|n| {
                let oid = pg_sys::get_fn_expr_argtype((*call).flinfo, n as i32);
                DatumWithOid::new(argument(call, n), oid)
            })
            .collect()
    }
}

/// What a function keeps from one call to the next in a query; dropped with the query. A function keeps one type only.
pub fn state<'a, T: Default + 'static>(call: pg_sys::FunctionCallInfo) -> &'a RefCell<T> {
    // SAFETY: PostgreSQL gives every call its FmgrInfo, whose fn_extra is the function's own and lives in fn_mcxt, as what is
    // leaked here does.
    unsafe {
        let info = (*call).flinfo;
        if (*info).fn_extra.is_null() {
            let mut context = PgMemoryContexts::For((*info).fn_mcxt);
            (*info).fn_extra = context.leak_and_drop_on_delete(RefCell::new(T::default())).cast();
        }
        &*(*info).fn_extra.cast::<RefCell<T>>()
    }
}

/// The bytes of a value whose type is compared by them; None for a value of another type.
pub type Image = [u64; 2];

/// See [`Image`].
pub fn image(value: &Arg<'_>) -> Option<Image> {
    // SAFETY: a datum of this type, which is not NULL; those of `uuid` are pointers to 16 bytes.
    unsafe { image_of(value.datum()?.sans_lifetime(), value.oid()) }
}

/// # Safety
/// `datum` is a value of that type.
pub(super) unsafe fn image_of(datum: pg_sys::Datum, oid: pg_sys::Oid) -> Option<Image> {
    match oid {
        pg_sys::INT2OID
        | pg_sys::INT4OID
        | pg_sys::INT8OID
        | pg_sys::OIDOID
        | pg_sys::DATEOID
        | pg_sys::TIMESTAMPOID
        | pg_sys::TIMESTAMPTZOID => Some([datum.value() as u64, 0]),
        pg_sys::UUIDOID => {
            // SAFETY: by the caller's promise.
            let halves = unsafe { datum.cast_mut_ptr::<Image>().read_unaligned() };
            Some(halves)
        }
        _ => None,
    }
}
