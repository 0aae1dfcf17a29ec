//! pgvector's `vector` type as a Rust value.
//!
//! Its varlena (pgvector 0.5 to 0.8, src/vector.h): 4 bytes length header, `int16 dim`, `int16 unused`, `dim` × float4.

use pgrx::callconv::{ArgAbi, BoxRet};
use pgrx::datum::{Datum, FromDatum, IntoDatum};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{pg_sys, pgrx_resolved_type};
use std::cell::Cell;

/// A dense vector of single-precision numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector(pub Vec<f32>);

const HEADER: usize = 8;

/// pgvector's VECTOR_MAX_DIM.
pub const MAX_DIMENSIONS: usize = 16_000;

thread_local! {
    static OID: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
}

/// The OID of `vector`, looked up again after the type was dropped.
fn oid() -> pg_sys::Oid {
    let known = OID.get();
    // SAFETY: a syscache look-up; answers InvalidOid for a type that is gone.
    if known != pg_sys::InvalidOid && unsafe { pg_sys::get_array_type(known) } != pg_sys::InvalidOid {
        return known;
    }
    let found = super::catalog::vector_type();
    OID.set(found);
    found
}

impl IntoDatum for Vector {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        assert!((1..=MAX_DIMENSIONS).contains(&self.0.len()), "a vector has 1 to {MAX_DIMENSIONS} dimensions");
        let bytes = HEADER + 4 * self.0.len();
        // SAFETY: palloc gives `bytes` aligned bytes; header, dimension and values fill exactly these.
        unsafe {
            let base = pg_sys::palloc(bytes).cast::<u8>();
            pgrx::varlena::set_varsize_4b(base.cast(), bytes as i32);
            base.add(4).cast::<u16>().write(self.0.len() as u16);
            base.add(6).cast::<u16>().write(0);
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), base.add(HEADER).cast::<f32>(), self.0.len());
            Some(pg_sys::Datum::from(base))
        }
    }

    fn type_oid() -> pg_sys::Oid {
        oid()
    }
}

impl FromDatum for Vector {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _type_oid: pg_sys::Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the datum is a `vector` by the function's or statement's signature; detoasted, it has the layout
        // above, and its own length is checked against its dimension before a value is read.
        unsafe {
            let base = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<u8>();
            let bytes = pgrx::varsize_any(base.cast());
            let dimensions = base.add(4).cast::<u16>().read() as usize;
            assert!(bytes == HEADER + 4 * dimensions, "not a vector of pgvector's layout");
            let mut values = vec![0f32; dimensions];
            std::ptr::copy_nonoverlapping(base.add(HEADER).cast::<f32>(), values.as_mut_ptr(), dimensions);
            Some(Vector(values))
        }
    }
}

// SAFETY: from_polymorphic_datum reads exactly what pgvector writes for the SQL type named below.
unsafe impl<'fcx> ArgAbi<'fcx> for Vector {
    unsafe fn unbox_arg_unchecked(arg: pgrx::callconv::Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller promises an argument of this type.
        unsafe { arg.unbox_arg_using_from_datum().expect("vector argument must not be null") }
    }
}

// SAFETY: returns a datum of the SQL type named below.
unsafe impl BoxRet for Vector {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut pgrx::callconv::FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: the datum was palloc'd in the function's memory context.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: the SQL type `vector` is what the conversions above read and write.
unsafe impl SqlTranslatable for Vector {
    const TYPE_IDENT: &'static str = pgrx_resolved_type!(Vector);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("vector"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("vector")));
}
