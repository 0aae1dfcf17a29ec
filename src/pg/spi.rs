//! SQL from Rust: a thin layer over SPI with kept plans.
//!
//! pgrx's own client assigns a transaction id even for a SELECT, which breaks standbys and parallel plans; this one leaves
//! that to the statement. The SQL text itself stands in the rooms' `statements`.

use super::role::Settings;
use pgrx::datum::DatumWithOid;
use pgrx::{FromDatum, IntoDatum, pg_sys};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// An identifier, quoted where it must be.
pub fn quote(identifier: &str) -> String {
    pgrx::spi::quote_identifier(identifier)
}

/// A value as an argument of a statement.
pub fn arg<'a, T: IntoDatum>(value: T) -> Arg<'a> {
    value.into()
}

/// Which rows a statement sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snapshot {
    /// What the calling query sees. The statement may only read.
    Active,
    /// What is committed by now, as far as the transaction's isolation level allows, and what this transaction did just now.
    /// The statement may write; one that does not runs on a standby, too.
    New,
}

/// An open SPI connection. Results live as long as it does.
pub struct Spi<'c> {
    connection: PhantomData<&'c ()>,
}

/// The rows of a statement.
pub struct Rows<'c> {
    table: *mut pg_sys::SPITupleTable,
    len: usize,
    connection: PhantomData<&'c ()>,
}

/// One row of [`Rows`].
pub struct Row<'r> {
    table: *mut pg_sys::SPITupleTable,
    index: usize,
    rows: PhantomData<&'r ()>,
}

/// An argument of a statement: a datum and its type.
pub type Arg<'a> = DatumWithOid<'a>;

/// Connects, runs `f`, disconnects. A PostgreSQL error in between is cleaned up by its (sub)transaction's abort.
pub fn connect<R>(f: impl FnOnce(&Spi<'_>) -> R) -> R {
    let _depth = Depth::enter();
    // SAFETY: SPI_connect and SPI_finish are paired; on an error raised by `f` PostgreSQL itself resets the stack.
    unsafe {
        pg_sys::SPI_connect();
        let result = f(&Spi { connection: PhantomData });
        pg_sys::SPI_finish();
        result
    }
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// How many connections are open inside one another: a statement can run somebody's function that calls us again.
struct Depth;

impl Depth {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs `f` under a snapshot taken now, also where the transaction's own would be older.
pub fn with_latest_snapshot<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: pushed and popped in pairs; an error in between is cleaned up by the transaction's abort.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let result = f();
        pg_sys::PopActiveSnapshot();
        result
    }
}

/// A kept plan, found again by its text and its argument types.
#[derive(PartialEq, Eq, Hash)]
struct PlanKey {
    sql: String,
    types: Vec<u32>,
}

thread_local! {
    // Never dropped: plans must not be freed while the process is already exiting.
    static PLANS: ManuallyDrop<RefCell<HashMap<PlanKey, pg_sys::SPIPlanPtr>>> = ManuallyDrop::new(RefCell::default());
}

/// Beyond so many kept plans all are dropped and made anew: a bound on memory for sessions that see many collections.
const MAX_PLANS: usize = 256;

impl<'c> Spi<'c> {
    /// Runs a statement and returns its rows. The plan is kept. Unqualified names in it are PostgreSQL's own, whatever the
    /// session's search_path is.
    pub fn query(&self, snapshot: Snapshot, sql: &str, args: &[Arg<'_>]) -> Rows<'c> {
        let _path = Settings::with_settled_path();
        self.execute_plan(snapshot, kept_plan(sql, args), args, sql)
    }

    /// Runs a statement with its own kept plan and returns its rows. The search_path is left as it is, since changing it
    /// would have the plan made anew: everything in such a statement is qualified.
    pub fn query_kept(&self, snapshot: Snapshot, statement: &Statement, args: &[Arg<'_>]) -> Rows<'c> {
        self.execute_plan(snapshot, statement.plan(args), args, &statement.sql)
    }

    fn execute_plan(&self, snapshot: Snapshot, plan: pg_sys::SPIPlanPtr, args: &[Arg<'_>], sql: &str) -> Rows<'c> {
        let (mut values, nulls) = values(args);
        // SAFETY: plan is live (kept), and values and nulls have as many entries as the plan has arguments, since it
        // was prepared for their types.
        let code = unsafe {
            pg_sys::SPI_execute_plan(plan, values.as_mut_ptr(), nulls.as_ptr(), snapshot == Snapshot::Active, 0)
        };
        self.result(code, sql)
    }

    /// Runs a statement that returns nothing; the number of rows it touched.
    pub fn run(&self, sql: &str, args: &[Arg<'_>]) -> u64 {
        self.query(Snapshot::New, sql, args).len as u64
    }

    /// Runs utility statements (DDL), separated by semicolons. The search_path is left as it is, since event triggers may
    /// rely on it: everything in them is qualified.
    pub fn utility(&self, sql: &str) {
        let text = CString::new(sql).expect("SQL text has no NUL");
        // SAFETY: text is a NUL-terminated string that outlives the call.
        let code = unsafe { pg_sys::SPI_execute(text.as_ptr(), false, 0) };
        self.result(code, sql);
    }

    /// Opens a cursor over a read-only statement. The search_path is left as it is, as by [`Self::query_kept`].
    pub fn cursor(&self, statement: &Statement, args: &[Arg<'_>]) -> Cursor<'c> {
        let plan = statement.plan(args);
        let (mut values, nulls) = values(args);
        // SAFETY: as in `execute`.
        let portal =
            unsafe { pg_sys::SPI_cursor_open(std::ptr::null(), plan, values.as_mut_ptr(), nulls.as_ptr(), true) };
        Cursor { portal, connection: PhantomData }
    }

    /// Makes the transition tables of a trigger visible to this connection's statements.
    pub fn register_trigger_data(&self, data: &super::trigger::TriggerCall<'_>) {
        // SAFETY: the trigger data PostgreSQL passed lives for the whole call.
        let code = unsafe { pg_sys::SPI_register_trigger_data(data.as_ptr()) };
        assert!(code >= 0, "SPI_register_trigger_data failed: {code}");
    }

    fn result(&self, code: i32, sql: &str) -> Rows<'c> {
        assert!(code >= 0, "SPI failed with {code} at: {sql}");
        // SAFETY: SPI_tuptable and SPI_processed belong to the call just made.
        unsafe { Rows { table: pg_sys::SPI_tuptable, len: pg_sys::SPI_processed as usize, connection: PhantomData } }
    }
}

/// A statement whose plan is made at its first use and kept until it is dropped.
pub struct Statement {
    sql: String,
    plan: Cell<pg_sys::SPIPlanPtr>,
    types: RefCell<Vec<pg_sys::Oid>>,
}

impl Statement {
    /// A statement that was not run yet.
    pub fn new(sql: String) -> Self {
        Self { sql, plan: Cell::new(std::ptr::null_mut()), types: RefCell::default() }
    }

    fn plan(&self, args: &[Arg<'_>]) -> pg_sys::SPIPlanPtr {
        if self.plan.get().is_null() {
            // What the arguments are does not decide how it is best run: no time is spent on planning it for each call.
            self.plan.set(prepare(&self.sql, args, pg_sys::CURSOR_OPT_GENERIC_PLAN));
            self.types.replace(args.iter().map(DatumWithOid::oid).collect());
        }
        let same_types = self.types.borrow().iter().copied().eq(args.iter().map(DatumWithOid::oid));
        assert!(same_types, "other argument types than before: {}", self.sql);
        self.plan.get()
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // While an error unwinds, PostgreSQL may be in a state where we must not; the plan is then never freed.
        if !self.plan.get().is_null() && !std::thread::panicking() {
            // SAFETY: kept by `prepare`, in no other place, and not in execution, since whoever executes it borrows
            // `self`. A portal opened from it holds its own reference on the part it runs.
            unsafe { pg_sys::SPI_freeplan(self.plan.get()) };
        }
    }
}

impl std::fmt::Debug for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sql)
    }
}

/// An open cursor.
pub struct Cursor<'c> {
    portal: pg_sys::Portal,
    connection: PhantomData<&'c ()>,
}

impl<'c> Cursor<'c> {
    /// The next rows, at most `count`; none when it is exhausted.
    pub fn fetch(&mut self, count: usize) -> Rows<'c> {
        // SAFETY: the portal is open until `close`; the results belong to the call just made.
        unsafe {
            pg_sys::SPI_cursor_fetch(self.portal, true, count as _);
            Rows { table: pg_sys::SPI_tuptable, len: pg_sys::SPI_processed as usize, connection: PhantomData }
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // While an error unwinds, the abort closes it.
        if !std::thread::panicking() {
            // SAFETY: nobody else closes the portal while its transaction goes on.
            unsafe { pg_sys::SPI_cursor_close(self.portal) }
        }
    }
}

fn kept_plan(sql: &str, args: &[Arg<'_>]) -> pg_sys::SPIPlanPtr {
    let types: Vec<u32> = args.iter().map(|a| a.oid().to_u32()).collect();
    let key = PlanKey { sql: sql.to_owned(), types };
    PLANS.with(|plans| {
        if let Some(plan) = plans.borrow().get(&key) {
            return *plan;
        }
        let plan = prepare(sql, args, 0);
        let mut plans = plans.borrow_mut();
        // In the outermost connection no statement of ours is being executed; deeper, one is, and its plan must stay.
        if plans.len() >= MAX_PLANS && DEPTH.get() == 1 {
            for (_, old) in plans.drain() {
                // SAFETY: each was kept, is in no other place and not in execution. A portal opened from one holds its
                // own reference on the part it runs.
                unsafe { pg_sys::SPI_freeplan(old) };
            }
        }
        plans.insert(key, plan);
        plan
    })
}

/// A plan that stays until it is freed.
fn prepare(sql: &str, args: &[Arg<'_>], options: u32) -> pg_sys::SPIPlanPtr {
    let text = CString::new(sql).expect("SQL text has no NUL");
    let mut oids: Vec<pg_sys::Oid> = args.iter().map(DatumWithOid::oid).collect();
    // SAFETY: text is NUL-terminated, oids has args.len() entries; the fresh plan is kept once.
    unsafe {
        let plan = pg_sys::SPI_prepare_cursor(text.as_ptr(), args.len() as i32, oids.as_mut_ptr(), options as i32);
        assert!(!plan.is_null(), "SPI_prepare failed at: {sql}");
        pg_sys::SPI_keepplan(plan);
        plan
    }
}

fn values(args: &[Arg<'_>]) -> (Vec<pg_sys::Datum>, Vec<std::ffi::c_char>) {
    args.iter()
        .map(|arg| match arg.datum() {
            Some(datum) => (datum.sans_lifetime(), b' ' as std::ffi::c_char),
            None => (pg_sys::Datum::from(0usize), b'n' as std::ffi::c_char),
        })
        .unzip()
}

impl<'c> Rows<'c> {
    /// The rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        let n = if self.table.is_null() { 0 } else { self.len };
        (0..n).map(|index| Row { table: self.table, index, rows: PhantomData })
    }

    /// The first row, if any.
    pub fn first(&self) -> Option<Row<'_>> {
        self.iter().next()
    }

    /// The only column of the first row.
    pub fn one<T: FromDatum + IntoDatum>(&self) -> Option<T> {
        self.first().and_then(|row| row.get(1))
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // While an error unwinds, the abort frees everything, and PostgreSQL may be in a state where we must not.
        if !self.table.is_null() && !std::thread::panicking() {
            // SAFETY: the table belongs to a connection that is still open; values read from it were copied.
            unsafe { pg_sys::SPI_freetuptable(self.table) };
        }
    }
}

/// Runs `f` with a memory context of its own, so that what PostgreSQL allocates meanwhile is freed at its end.
pub fn in_own_memory<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the context is switched to and back and deleted in pairs; an error in between leaves it to its parent.
    unsafe {
        // ALLOCSET_DEFAULT_SIZES: minimum 0, blocks from 8 kB to 8 MB.
        let context = pg_sys::AllocSetContextCreateInternal(
            pg_sys::CurrentMemoryContext,
            c"pg_ragent".as_ptr(),
            0,
            8 * 1024,
            8 * 1024 * 1024,
        );
        let before = pg_sys::MemoryContextSwitchTo(context);
        let result = f();
        pg_sys::MemoryContextSwitchTo(before);
        pg_sys::MemoryContextDelete(context);
        result
    }
}

impl Row<'_> {
    /// Column `column`, counted from 1; `None` for NULL. Its SQL type must be `T`'s: the statement casts.
    pub fn get<T: FromDatum + IntoDatum>(&self, column: usize) -> Option<T> {
        // SAFETY: index is below the number of rows SPI reported; SPI_getbinval answers NULL with an error code for
        // a column out of range. from_polymorphic_datum is given the column's own type.
        unsafe {
            let desc = (*self.table).tupdesc;
            let tuple = *(*self.table).vals.add(self.index);
            let mut is_null = true;
            let datum = pg_sys::SPI_getbinval(tuple, desc, column as i32, &mut is_null);
            assert!(column >= 1 && column <= (*desc).natts as usize, "no column {column}");
            let type_oid = pg_sys::SPI_gettypeid(desc, column as i32);
            assert!(
                T::is_compatible_with(type_oid),
                "column {column} has type {type_oid}, which is not a {}",
                std::any::type_name::<T>()
            );
            T::from_polymorphic_datum(datum, is_null, type_oid)
        }
    }

    /// The bytes of a column's value, if its type is compared by them and it is not NULL.
    pub fn image(&self, column: usize) -> Option<super::call::Image> {
        // SAFETY: as in `get`; SPI_getbinval gives a value of the column's type.
        unsafe {
            let desc = (*self.table).tupdesc;
            let tuple = *(*self.table).vals.add(self.index);
            let mut is_null = true;
            let datum = pg_sys::SPI_getbinval(tuple, desc, column as i32, &mut is_null);
            let oid = pg_sys::SPI_gettypeid(desc, column as i32);
            if is_null { None } else { super::call::image_of(datum, oid) }
        }
    }

    /// As [`Row::get`], for a column that cannot be NULL.
    pub fn need<T: FromDatum + IntoDatum>(&self, column: usize) -> T {
        self.get(column).unwrap_or_else(|| panic!("column {column} is null"))
    }

    /// The column of that name; `None` for NULL. Its SQL type must be `T`'s.
    pub fn named<T: FromDatum + IntoDatum>(&self, column: &str) -> Option<T> {
        let name = CString::new(column).expect("column names have no NUL");
        // SAFETY: the row's descriptor lives as long as its rows; the name is NUL-terminated.
        let number = unsafe { pg_sys::SPI_fnumber((*self.table).tupdesc, name.as_ptr()) };
        assert!(number > 0, "no column \"{column}\"");
        self.get(number as usize)
    }

    /// As [`Row::named`], for a column that cannot be NULL.
    pub fn need_named<T: FromDatum + IntoDatum>(&self, column: &str) -> T {
        self.named(column).unwrap_or_else(|| panic!("column \"{column}\" is null"))
    }
}
