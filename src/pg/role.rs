//! Acting as another role for a moment, and settings that hold for a moment.

use pgrx::pg_sys;
use std::ffi::{CStr, CString, c_char, c_int};

unsafe extern "C" {
    // The variables behind the settings bytea_output (utils/bytea.h; 1 is hex) and lc_monetary (utils/pg_locale.h), which pgrx
    // does not bind.
    static bytea_output: c_int;
    static locale_monetary: *const c_char;
}
const BYTEA_OUTPUT_HEX: c_int = 1;

/// While it lives, the current user is another role. Dropped, also by an error's unwinding, everything is as before.
pub struct ActingAs {
    user: pg_sys::Oid,
    context: i32,
    nest_level: i32,
    read_only: bool,
}

const RESTRICTED: i32 = (pg_sys::SECURITY_LOCAL_USERID_CHANGE
    | pg_sys::SECURITY_RESTRICTED_OPERATION
    | pg_sys::SECURITY_NOFORCE_RLS) as i32;

/// The bootstrap superuser, who exists in every cluster and may read and write the extension's own tables.
pub const BOOTSTRAP_SUPERUSER: pg_sys::Oid = pg_sys::Oid::from_u32(10);

/// The role whose privileges hold now.
pub fn current() -> pg_sys::Oid {
    // SAFETY: reads a static.
    unsafe { pg_sys::GetUserId() }
}

/// Whether the current role is a superuser.
pub fn is_superuser() -> bool {
    // SAFETY: a catalog look-up inside a transaction.
    unsafe { pg_sys::superuser() }
}

/// Whether the current role has the privileges of `role` (is it, a member of it, or a superuser).
pub fn has_privileges_of(role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up inside a transaction.
    unsafe { pg_sys::has_privs_of_role(current(), role) }
}

/// Whether the current role has the privileges of `role` without being a superuser: is it, or a member of it.
pub fn is_member_of(role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up inside a transaction.
    if is_superuser() { unsafe { pg_sys::is_member_of_role_nosuper(current(), role) } } else { has_privileges_of(role) }
}

/// PostgreSQL's predefined role `pg_monitor`.
const PG_MONITOR: pg_sys::Oid = pg_sys::Oid::from_u32(3373);

/// Whether the current role is one that watches the server (`pg_monitor`), as which superusers do not count.
pub fn watches_server() -> bool {
    is_member_of(PG_MONITOR)
}

/// Whether a role is a superuser.
pub fn is_superuser_role(role: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up inside a transaction, which answers for a role that is not there.
    unsafe { pg_sys::superuser_arg(role) }
}

/// The role of that name, if there is one.
pub fn named(name: &str) -> Option<pg_sys::Oid> {
    let name = CString::new(name).ok()?;
    // SAFETY: a catalog look-up inside a transaction; missing_ok.
    let oid = unsafe { pg_sys::get_role_oid(name.as_ptr(), true) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// Whether the current role has the privileges of the role of this name, if there is one.
pub fn has_privileges_of_name(name: &str) -> bool {
    named(name).is_some_and(has_privileges_of)
}

/// Whether policies decide which rows of a table the current role sees.
pub fn is_under_row_security(table: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up inside a transaction; with noError it raises nothing when row_security is off.
    let state = unsafe { pg_sys::check_enable_rls(table, pg_sys::InvalidOid, true) };
    state == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
}

/// Whether the current role may SELECT columns of a table: its schema, and the table or each column. A column number of 0
/// stands for a column that is not there.
pub fn may_select(table: pg_sys::Oid, columns: &[i16]) -> bool {
    const SELECT: pg_sys::AclMode = pg_sys::ACL_SELECT as pg_sys::AclMode;
    let role = current();
    let mut is_missing = false;
    // SAFETY: catalog look-ups inside a transaction, which answer for what is not there instead of raising an error.
    unsafe {
        let schema = pg_sys::get_rel_namespace(table);
        if schema == pg_sys::InvalidOid || !may_use_schema(schema, role) {
            return false;
        }
        pg_sys::pg_class_aclcheck_ext(table, role, SELECT, &mut is_missing) == pg_sys::AclResult::ACLCHECK_OK
            || columns.iter().all(|number| {
                *number > 0
                    && pg_sys::pg_attribute_aclcheck_ext(table, *number, role, SELECT, &mut is_missing)
                        == pg_sys::AclResult::ACLCHECK_OK
            })
    }
}

/// Whether the current role may SELECT any column of a table: where not, it may not SELECT several of them either.
pub fn may_select_any(table: pg_sys::Oid) -> bool {
    const SELECT: pg_sys::AclMode = pg_sys::ACL_SELECT as pg_sys::AclMode;
    let role = current();
    let mut is_missing = false;
    // SAFETY: catalog look-ups inside a transaction; a table that is not there has no schema.
    unsafe {
        let schema = pg_sys::get_rel_namespace(table);
        schema != pg_sys::InvalidOid
            && may_use_schema(schema, role)
            && (pg_sys::pg_class_aclcheck_ext(table, role, SELECT, &mut is_missing) == pg_sys::AclResult::ACLCHECK_OK
                || pg_sys::pg_attribute_aclcheck_all(table, role, SELECT, pg_sys::AclMaskHow::ACLMASK_ANY)
                    == pg_sys::AclResult::ACLCHECK_OK)
    }
}

/// # Safety
/// `schema` must exist, and a transaction be open.
unsafe fn may_use_schema(schema: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    const USAGE: pg_sys::AclMode = pg_sys::ACL_USAGE as pg_sys::AclMode;
    // SAFETY: by the caller's promise.
    unsafe {
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_namespace_aclcheck(schema, role, USAGE);
        #[cfg(not(feature = "pg15"))]
        let result = pg_sys::object_aclcheck(pg_sys::NamespaceRelationId, schema, role, USAGE);
        result == pg_sys::AclResult::ACLCHECK_OK
    }
}

/// The name of a role, for messages and for the records of runs.
pub fn name(role: pg_sys::Oid) -> String {
    // SAFETY: with noerr = true the result is NULL or a palloc'd string.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() { role.to_u32().to_string() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    }
}

impl ActingAs {
    /// The bootstrap superuser, to read and write the extension's own tables, and nobody else's; only built-in functions
    /// are found by unqualified names.
    pub fn superuser() -> Self {
        Self::switch(BOOTSTRAP_SUPERUSER, pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32)
    }

    /// A table owner, restricted as maintenance is: code of theirs that runs now cannot escape into this session. As in
    /// foreign-key checks, FORCE ROW LEVEL SECURITY does not hide the owner's own rows.
    pub fn restricted(owner: pg_sys::Oid) -> Self {
        Self::switch(owner, RESTRICTED)
    }

    /// As [`Self::restricted`], for a statement that runs nobody's code and names everything with its schema: the
    /// session's search_path stays, since changing it costs more than such a statement.
    pub fn reader(owner: pg_sys::Oid) -> Self {
        let guard = Self::enter(owner, RESTRICTED);
        make_reading_uniform();
        guard
    }

    /// The current role itself, restricted and unable to write, while policies of other people's tables are asked on its
    /// behalf. Its own search_path and styles hold, since policies may rely on them.
    pub fn guarded_self() -> Self {
        let guard = Self::enter(
            current(),
            (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION) as i32,
        );
        ask_policies();
        // The variable of transaction_read_only, which PostgreSQL 16 and later do not let anybody set for a while by
        // name. SQL cannot switch it off again, since a query has run.
        // SAFETY: writes a static of this process; Drop puts it back, and so does the abort of a (sub)transaction.
        unsafe { pg_sys::XactReadOnly = true };
        guard
    }

    /// A table owner that creates, grants or drops objects. Event triggers of the database run meanwhile, as that role and
    /// with the search_path `path`, or the session's own: they may rely on it. So every name in such a statement is
    /// qualified, and the session's path is for callers only who have the privileges of `owner` anyway.
    pub fn definer(owner: pg_sys::Oid, path: Option<&str>) -> Self {
        let guard = Self::enter(owner, pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32);
        if let Some(path) = path {
            set_locally("search_path", path);
        }
        guard
    }

    /// As [`Self::definer`], for a statement that also runs what the owner attached to a table, or casts of the owner's.
    pub fn restricted_definer(owner: pg_sys::Oid, path: Option<&str>) -> Self {
        let guard = Self::enter(owner, RESTRICTED);
        if let Some(path) = path {
            set_locally("search_path", path);
        }
        guard
    }

    fn switch(role: pg_sys::Oid, flags: i32) -> Self {
        let guard = Self::enter(role, flags);
        settle_search_path();
        make_reading_uniform();
        guard
    }

    fn enter(role: pg_sys::Oid, flags: i32) -> Self {
        let mut user = pg_sys::InvalidOid;
        let mut context = 0;
        // SAFETY: the saved values are put back by Drop; PostgreSQL also puts them back when a (sub)transaction
        // aborts. The nest level is closed by Drop or by the abort, whichever is first.
        let nest_level = unsafe {
            pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
            pg_sys::SetUserIdAndSecContext(role, context | flags);
            pg_sys::NewGUCNestLevel()
        };
        // SAFETY: reads a static.
        let read_only = unsafe { pg_sys::XactReadOnly };
        Self { user, context, nest_level, read_only }
    }
}

/// The search_path under which an unqualified name can only be PostgreSQL's own.
const SETTLED_PATH: &str = "pg_catalog, pg_temp";

/// Whether unqualified names of a statement that is run now can only be PostgreSQL's own.
pub fn has_settled_path() -> bool {
    // SAFETY: the variable of search_path, NULL or NUL-terminated.
    unsafe {
        let path = pg_sys::namespace_search_path;
        !path.is_null() && CStr::from_ptr(path).to_bytes() == SETTLED_PATH.as_bytes()
    }
}

fn settle_search_path() {
    if !has_settled_path() {
        set_locally("search_path", SETTLED_PATH);
    }
}

/// A setting that decides how values are written, with the value that holds where they must be written alike by everybody.
struct Style {
    name: &'static str,
    value: &'static str,
    holds: fn() -> bool,
}

/// Those that a session often has otherwise, or that decide how a key is read.
const STYLES: [Style; 5] = [
    // SAFETY: here and below, reads statics of this process.
    Style { name: "DateStyle", value: "ISO", holds: || unsafe { pg_sys::DateStyle == pg_sys::USE_ISO_DATES as i32 } },
    Style {
        name: "IntervalStyle",
        value: "postgres",
        // SAFETY: as above.
        holds: || unsafe { pg_sys::IntervalStyle == pg_sys::INTSTYLE_POSTGRES as i32 },
    },
    // 1 and above give the shortest exact text.
    // SAFETY: as above.
    Style { name: "extra_float_digits", value: "1", holds: || unsafe { pg_sys::extra_float_digits >= 1 } },
    // SAFETY: as above.
    Style { name: "bytea_output", value: "hex", holds: || unsafe { bytea_output == BYTEA_OUTPUT_HEX } },
    Style { name: "TimeZone", value: "UTC", holds: has_universal_time },
];

/// Those that matter to few types: money, and names of objects.
const RARE_STYLES: [Style; 2] = [
    Style { name: "lc_monetary", value: "C", holds: has_plain_money },
    // SAFETY: reads a static of this process.
    Style { name: "quote_all_identifiers", value: "off", holds: || unsafe { !pg_sys::quote_all_identifiers } },
];

fn has_universal_time() -> bool {
    // SAFETY: the time zone of the session, which is never NULL in a transaction; its name is NUL-terminated. ISO output has
    // the offset, not the name.
    let name = unsafe { CStr::from_ptr(pg_sys::pg_get_timezone_name(pg_sys::session_timezone)) };
    [c"UTC", c"Etc/UTC", c"GMT"].contains(&name)
}

fn has_plain_money() -> bool {
    // SAFETY: the variable of lc_monetary, NULL or NUL-terminated.
    unsafe { !locale_monetary.is_null() && CStr::from_ptr(locale_monetary) == c"C" }
}

fn make_uniform(styles: &[Style]) {
    for style in styles {
        if !(style.holds)() {
            set_locally(style.name, style.value);
        }
    }
}

/// With row_security off (as pg_dump's scripts set it) a statement that a policy concerns would be an error.
fn ask_policies() {
    // SAFETY: reads a static.
    if unsafe { !pg_sys::row_security } {
        set_locally("row_security", "on");
    }
}

/// What is made of many values is written quickly where the session's settings are those of everybody already.
fn make_reading_uniform() {
    ask_policies();
    make_uniform(&STYLES);
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        restore(self.nest_level);
        // SAFETY: puts back what `enter` saved.
        unsafe {
            pg_sys::XactReadOnly = self.read_only;
            pg_sys::SetUserIdAndSecContext(self.user, self.context);
        }
    }
}

/// While it lives, settings made with [`Settings::set`] hold; dropped, the session's own come back.
pub struct Settings {
    nest_level: i32,
}

impl Settings {
    /// Opens a level of settings.
    pub fn new() -> Self {
        // SAFETY: closed by Drop, or by the abort of the transaction.
        Self { nest_level: unsafe { pg_sys::NewGUCNestLevel() } }
    }

    /// A level under whose search_path unqualified names can only be PostgreSQL's own; none where that is so already.
    pub fn with_settled_path() -> Option<Self> {
        (!has_settled_path()).then(|| {
            let settings = Self::new();
            settle_search_path();
            settings
        })
    }

    /// A level in which no lock is waited for longer than this.
    pub fn with_lock_timeout(milliseconds: u64) -> Self {
        let settings = Self::new();
        // SAFETY: reads a static.
        let own = unsafe { pg_sys::LockTimeout };
        if own == 0 || own as u64 > milliseconds {
            settings.set("lock_timeout", &milliseconds.to_string());
        }
        settings
    }

    /// The settings under which rows are captured, whatever the writer's session has. Keys are written alike by themselves.
    pub fn for_capture() -> Self {
        let settings = Self::new();
        ask_policies();
        settings
    }

    /// A level under which values are written alike whatever the session has: all styles and, if `names`, names of objects.
    /// None where they are so already.
    pub fn uniform(names: bool) -> Option<Self> {
        let path_holds = !names || has_settled_path();
        if path_holds && STYLES.iter().chain(&RARE_STYLES).all(|style| (style.holds)()) {
            return None;
        }
        let settings = Self::new();
        make_uniform(&STYLES);
        make_uniform(&RARE_STYLES);
        if !path_holds {
            settle_search_path();
        }
        Some(settings)
    }

    /// A level under which intervals and money are read as they were written alike; dates and times say themselves what they
    /// are.
    pub fn for_keys() -> Self {
        let settings = Self::new();
        for style in STYLES.iter().chain(&RARE_STYLES) {
            if matches!(style.name, "IntervalStyle" | "lc_monetary") && !(style.holds)() {
                settings.set(style.name, style.value);
            }
        }
        settings
    }

    /// Sets one.
    pub fn set(&self, name: &str, value: &str) {
        set_locally(name, value);
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        restore(self.nest_level);
    }
}

fn restore(nest_level: i32) {
    // While an error unwinds, the abort of its transaction closes the level; doing it twice would not be an error,
    // but running hooks during an abort could be.
    if std::thread::panicking() {
        return;
    }
    // SAFETY: the level was opened by NewGUCNestLevel and not closed since.
    unsafe { pg_sys::AtEOXact_GUC(false, nest_level) };
}

/// A setting's current value, if everybody may see it and it is text.
pub fn open_setting(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: missing_ok; flags are 0 for a setting that is not there. The string belongs to the GUC machinery and is copied
    // at once.
    unsafe {
        if pg_sys::GetConfigOptionFlags(name.as_ptr(), true) as u32 & pg_sys::GUC_SUPERUSER_ONLY != 0 {
            return None;
        }
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        if value.is_null() { None } else { CStr::from_ptr(value).to_str().ok().map(str::to_owned) }
    }
}

/// A setting's current value, if there is such a setting.
pub fn setting(name: &str) -> Option<String> {
    let name = CString::new(name).expect("setting names have no NUL");
    // SAFETY: missing_ok; the string belongs to the GUC machinery and is copied at once.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        if value.is_null() { None } else { Some(CStr::from_ptr(value).to_string_lossy().into_owned()) }
    }
}

fn set_locally(name: &str, value: &str) {
    set(name, value, pg_sys::GucAction::GUC_ACTION_SAVE);
}

/// Sets one until the end of the transaction.
pub(super) fn set_for_transaction(name: &str, value: &str) {
    set(name, value, pg_sys::GucAction::GUC_ACTION_LOCAL);
}

fn set(name: &str, value: &str, action: pg_sys::GucAction::Type) {
    let name = CString::new(name).expect("setting names have no NUL");
    let value = CString::new(value).expect("setting values have no NUL");
    // SAFETY: both strings are NUL-terminated and copied by the callee. PGC_S_SESSION with GUC_ACTION_SAVE makes the
    // change end with the nest level, with GUC_ACTION_LOCAL with the transaction.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            action,
            true,
            0,
            false,
        );
    }
}
