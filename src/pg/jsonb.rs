//! A `jsonb` value as PostgreSQL stores it: it passes from one statement to another, or out of a function, as it is.

use pgrx::callconv::{ArgAbi, BoxRet};
use pgrx::datum::{Datum, FromDatum, IntoDatum};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{pg_sys, pgrx_resolved_type};
use std::ffi::{CStr, c_int};

/// The bytes of a `jsonb`, its length header among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jsonb(Box<[u8]>);

impl Jsonb {
    /// The value as JSON text, as `jsonb::text` gives it.
    pub fn text(&self) -> String {
        let root = self.allocate();
        // SAFETY: `allocate` gives a jsonb as PostgreSQL made it. Its container begins after the length header; the
        // result is a palloc'd string, copied and freed, as is the jsonb.
        unsafe {
            let container = root.cast::<u8>().add(pg_sys::VARHDRSZ).cast::<pg_sys::JsonbContainer>();
            let text = pg_sys::JsonbToCString(std::ptr::null_mut(), container, self.0.len() as c_int);
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            pg_sys::pfree(text.cast());
            pg_sys::pfree(root.cast());
            copy
        }
    }

    fn allocate(&self) -> *mut u8 {
        // SAFETY: palloc gives so many bytes, aligned as any datum is.
        unsafe {
            let copy = pg_sys::palloc(self.0.len()).cast::<u8>();
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), copy, self.0.len());
            copy
        }
    }
}

impl IntoDatum for Jsonb {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        Some(pg_sys::Datum::from(self.allocate()))
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONBOID
    }
}

impl FromDatum for Jsonb {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _type_oid: pg_sys::Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the datum is a `jsonb` by the function's or statement's signature; detoasted, it has a header of four
        // bytes and its own length.
        unsafe {
            let base = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            let bytes = std::slice::from_raw_parts(base.cast::<u8>(), pgrx::varsize_any(base));
            Some(Self(bytes.into()))
        }
    }
}

// SAFETY: from_polymorphic_datum reads the SQL type named below.
unsafe impl<'fcx> ArgAbi<'fcx> for Jsonb {
    unsafe fn unbox_arg_unchecked(arg: pgrx::callconv::Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller promises an argument of this type.
        unsafe { arg.unbox_arg_using_from_datum().expect("jsonb argument must not be null") }
    }
}

// SAFETY: returns a datum of the SQL type named below.
unsafe impl BoxRet for Jsonb {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut pgrx::callconv::FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: the datum was palloc'd in the function's memory context.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: the SQL type `jsonb` is what the conversions above read and write.
unsafe impl SqlTranslatable for Jsonb {
    const TYPE_IDENT: &'static str = pgrx_resolved_type!(Jsonb);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}
