//! Values as text and as JSON, the same whatever the settings of the session are.

use super::call::argument;
use super::catalog;
use super::role::Settings;
use super::xact;
use pgrx::callconv::BoxRet;
use pgrx::datum::Datum;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{pg_sys, pgrx_resolved_type};

/// What decides how values of a type are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writing {
    /// The value alone, also where it is cast to text.
    Alike,
    /// Settings of the session, such as TimeZone.
    BySettings,
    /// Those and the search_path, or what is not known.
    ByNames,
}

/// `jsonpath`, which has no name in PostgreSQL's headers that pgrx binds everywhere.
const JSONPATH: pg_sys::Oid = pg_sys::Oid::from_u32(4072);
/// `xid8`.
const XID8: pg_sys::Oid = pg_sys::Oid::from_u32(5069);

/// What decides how values of a type are written: of an array its elements.
pub fn writing(oid: pg_sys::Oid) -> Writing {
    match catalog::types_within(oid).last().copied().unwrap_or(oid) {
        pg_sys::TEXTOID
        | pg_sys::VARCHAROID
        | pg_sys::BPCHAROID
        | pg_sys::NAMEOID
        | pg_sys::CHAROID
        | pg_sys::BOOLOID
        | pg_sys::INT2OID
        | pg_sys::INT4OID
        | pg_sys::INT8OID
        | pg_sys::OIDOID
        | pg_sys::NUMERICOID
        | pg_sys::UUIDOID
        | pg_sys::JSONOID
        | pg_sys::JSONBOID
        | JSONPATH
        | pg_sys::XMLOID
        | pg_sys::INETOID
        | pg_sys::CIDROID
        | pg_sys::MACADDROID
        | pg_sys::MACADDR8OID
        | pg_sys::BITOID
        | pg_sys::VARBITOID
        | pg_sys::TSVECTOROID
        | pg_sys::TSQUERYOID
        | pg_sys::TIDOID
        | pg_sys::XIDOID
        | XID8
        | pg_sys::PG_LSNOID => Writing::Alike,
        pg_sys::TIMESTAMPTZOID
        | pg_sys::TIMESTAMPOID
        | pg_sys::DATEOID
        | pg_sys::TIMEOID
        | pg_sys::TIMETZOID
        | pg_sys::INTERVALOID
        | pg_sys::FLOAT4OID
        | pg_sys::FLOAT8OID
        | pg_sys::BYTEAOID
        | pg_sys::MONEYOID
        | pg_sys::POINTOID
        | pg_sys::LSEGOID
        | pg_sys::PATHOID
        | pg_sys::BOXOID
        | pg_sys::POLYGONOID
        | pg_sys::LINEOID
        | pg_sys::CIRCLEOID => Writing::BySettings,
        _ => Writing::ByNames,
    }
}

/// Whether values that were written alike are also read alike by every session. Dates and times say themselves what they are;
/// numbers and bytes can only be read in one way.
pub fn is_read_alike(oid: pg_sys::Oid) -> bool {
    let innermost = catalog::types_within(oid).last().copied().unwrap_or(oid);
    match writing(oid) {
        Writing::Alike => true,
        Writing::BySettings => !matches!(innermost, pg_sys::INTERVALOID | pg_sys::MONEYOID),
        Writing::ByNames => false,
    }
}

/// What is known of the argument of one call in a query, kept as long as the query.
struct Known {
    output: pg_sys::FmgrInfo,
    writing: Writing,
    holds_json: bool,
}

/// What is known of the first argument of a call.
///
/// # Safety
/// `call` is a call of a function of one argument, which is running.
unsafe fn known(call: pg_sys::FunctionCallInfo) -> *mut Known {
    // SAFETY: PostgreSQL gives every call its FmgrInfo, whose fn_extra is the function's own and lives in fn_mcxt.
    unsafe {
        let info = (*call).flinfo;
        if (*info).fn_extra.is_null() {
            let oid = pg_sys::get_fn_expr_argtype(info, 0);
            let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
            pg_sys::getTypeOutputInfo(oid, &mut output, &mut is_varlena);
            let known = pg_sys::MemoryContextAllocZero((*info).fn_mcxt, size_of::<Known>()).cast::<Known>();
            pg_sys::fmgr_info_cxt(output, &raw mut (*known).output, (*info).fn_mcxt);
            (*known).writing = writing(oid);
            (*known).holds_json = catalog::types_within(oid).contains(&pg_sys::JSONOID);
            (*info).fn_extra = known.cast();
        }
        (*info).fn_extra.cast()
    }
}

impl Writing {
    /// The settings under which such values are written, where they do not hold already.
    fn settings(self) -> Option<Settings> {
        match self {
            Self::Alike => None,
            Self::BySettings => Settings::uniform(false),
            Self::ByNames => Settings::uniform(true),
        }
    }
}

/// A value as its type's output function writes it.
pub fn text(call: pg_sys::FunctionCallInfo) -> PlainText {
    // SAFETY: `call` is what PostgreSQL called us with, a strict function of one argument; `known` is of that argument's type.
    unsafe {
        let known = known(call);
        let _settings = (*known).writing.settings();
        let written = pg_sys::OutputFunctionCall(&raw mut (*known).output, argument(call, 0));
        let text = pg_sys::cstring_to_text(written);
        pg_sys::pfree(written.cast());
        PlainText(pg_sys::Datum::from(text))
    }
}

/// A value as JSON. None where it is, or holds, `json` that `jsonb` cannot hold.
pub fn json(call: pg_sys::FunctionCallInfo) -> PlainJson {
    // SAFETY: as in `text`. `to_jsonb` asks its call for the type of the argument, which is that of ours.
    unsafe {
        let known = known(call);
        let _settings = (*known).writing.settings();
        let value = || pg_sys::to_jsonb(call);
        if (*known).holds_json { PlainJson(xact::attempt(value).ok()) } else { PlainJson(Some(value())) }
    }
}

/// A `text` that was just made.
pub struct PlainText(pg_sys::Datum);

/// A `jsonb` that was just made, or NULL.
pub struct PlainJson(Option<pg_sys::Datum>);

// SAFETY: returns a datum of the SQL type named below, made in the function's memory context.
unsafe impl BoxRet for PlainText {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut pgrx::callconv::FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: as above.
        unsafe { fcinfo.return_raw_datum(self.0) }
    }
}

// SAFETY: as above.
unsafe impl BoxRet for PlainJson {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut pgrx::callconv::FcInfo<'fcx>) -> Datum<'fcx> {
        match self.0 {
            // SAFETY: as above.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: the SQL type `text` is what `PlainText` is.
unsafe impl SqlTranslatable for PlainText {
    const TYPE_IDENT: &'static str = pgrx_resolved_type!(PlainText);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("text"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("text")));
}

// SAFETY: the SQL type `jsonb` is what `PlainJson` is.
unsafe impl SqlTranslatable for PlainJson {
    const TYPE_IDENT: &'static str = pgrx_resolved_type!(PlainJson);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}
