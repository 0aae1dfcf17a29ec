//! Settings that PostgreSQL checks as they are set: lists of names.

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_guard, pg_sys};
use std::ffi::{CStr, CString, c_char, c_void};

/// Defines a setting that holds a list of names: `app_owner, Reports`. They are taken as they stand, since `SET ... = "Reports"` comes
/// without its quotes, and `reports` is another name; quotes are needed around blanks and commas. A list that cannot be read as
/// one is refused when it is set.
pub fn define_names(
    name: &'static CStr,
    short_description: &'static CStr,
    long_description: &'static CStr,
    setting: &'static GucSetting<Option<CString>>,
    context: GucContext,
) {
    // SAFETY: the hook is guarded, and keeps to what PostgreSQL asks of a check hook.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            name,
            short_description,
            long_description,
            setting,
            context,
            GucFlags::from_bits_retain(pg_sys::GUC_LIST_INPUT as i32),
            Some(check_names),
            None,
            None,
        );
    }
}

/// The names of a list; `None` where it cannot be read as one.
pub fn names(list: &str) -> Option<Vec<String>> {
    let list = CString::new(list).ok()?;
    // SAFETY: the copy is PostgreSQL's to cut up; what it gives are pointers into it, copied at once.
    unsafe {
        let mut found: *mut pg_sys::List = std::ptr::null_mut();
        let is_list = pg_sys::SplitGUCList(pg_sys::pstrdup(list.as_ptr()), b',' as c_char, &mut found);
        let names = pgrx::PgList::<c_char>::from_pg(found);
        is_list.then(|| names.iter_ptr().map(|name| CStr::from_ptr(name).to_string_lossy().into_owned()).collect())
    }
}

/// # Safety
/// Called by PostgreSQL with a value that is to be checked.
#[pg_guard]
unsafe extern "C-unwind" fn check_names(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: the value is NULL or a NUL-terminated string; what is said about it is a constant.
    unsafe {
        if (*value).is_null() {
            return true;
        }
        let is_list = names(&CStr::from_ptr(*value).to_string_lossy()).is_some();
        if !is_list {
            pg_sys::GUC_check_errdetail_string = c"It is not a list of names.".as_ptr().cast_mut();
            pg_sys::GUC_check_errhint_string =
                c"Separate names by commas, and put double quotes around those that are no single words, within the single quotes of a string."
                    .as_ptr()
                    .cast_mut();
        }
        is_list
    }
}
