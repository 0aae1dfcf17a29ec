//! Settings: the defaults a person sets with SET, ALTER ROLE, ALTER DATABASE or postgresql.conf.

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::CString;
use std::path::PathBuf;
use std::time::Duration;

static EMBEDDING_MODEL: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c"local/all-MiniLM-L6-v2"));
static CHAT_MODEL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"local/extractive"));
static TRUSTED_OWNERS: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static MODEL_DIR: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// `rag.worker`: whether background workers work.
pub static WORKER: GucSetting<bool> = GucSetting::<bool>::new(true);

/// What is recorded of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, pgrx::PostgresGucEnum)]
pub enum Record {
    /// Everything.
    #[name = c"on"]
    On,
    /// Everything but texts.
    #[name = c"metadata"]
    Metadata,
    /// Nothing.
    #[name = c"off"]
    Off,
}

static RECORD: GucSetting<Record> = GucSetting::<Record>::new(Record::On);
static SCOPE_SETTINGS: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static ASK_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(120_000);
static REQUIRE_GROUNDING: GucSetting<bool> = GucSetting::<bool>::new(true);

static WORKERS: GucSetting<i32> = GucSetting::<i32>::new(1);
/// Most workers of a database.
const MAX_WORKERS: i32 = 8;

static EXACT_SEARCH_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1024);
static MAX_INPUT_BYTES: GucSetting<i32> = GucSetting::<i32>::new(1 << 20);
static MAX_ROW_BYTES: GucSetting<i32> = GucSetting::<i32>::new(32 << 20);
static WORKER_STATEMENT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(10_000);

/// Registers them. Called once, from `_PG_init`.
pub fn register() {
    GucRegistry::define_string_guc(
        c"rag.embedding_model",
        c"Model that turns text into vectors, as \"server/model\", where none is named.",
        c"Used by rag.embed and, at its creation, by rag.create_collection; a collection keeps the model it was created with.",
        &EMBEDDING_MODEL,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"rag.chat_model",
        c"Model that decides whether to search and writes the answer, as \"server/model\", where none is named.",
        c"The default, local/extractive, needs no key: it answers with sentences of the passages it found.",
        &CHAT_MODEL,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"rag.ask_timeout",
        c"Longest time that rag.ask and rag.answer take for one question, all requests to models and all waiting included.",
        c"A request of the run waits no longer than the rest of it, nor than the option timeout of its server. 0 means no limit.",
        &ASK_TIMEOUT,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_bool_guc(
        c"rag.require_grounding",
        c"Whether a model that answers without having searched is told to search, and one that cites nothing is told to cite.",
        c"Each once in a run, and not for greetings and thanks. What cites nothing in the end has the outcome \"ungrounded\", whatever this setting is.",
        &REQUIRE_GROUNDING,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"rag.model_dir",
        c"Directory with one folder for each model of server \"local\".",
        c"Empty means pg_ragent/models in PostgreSQL's share directory, which is where \"make install\" puts them.",
        &MODEL_DIR,
        GucContext::Suset,
        GucFlags::default(),
    );
    crate::pg::setting::define_names(
        c"rag.trusted_owners",
        c"Roles whose collections are searched where no collection is named.",
        c"A list of role names. Besides them, you trust yourself, roles whose privileges you have, superusers and the database's owner. Policies of a trusted owner's tables run with your rights; other owners' collections must be named.",
        &TRUSTED_OWNERS,
        GucContext::Userset,
    );
    GucRegistry::define_enum_guc(
        c"rag.record",
        c"What is recorded of runs in rag.runs and rag.steps: on, metadata or off.",
        c"With metadata no text is kept (questions, answers, quotes, passages, arguments and results of tools), but counts, tokens, times, models, status and the keys of cited rows. With off nothing is.",
        &RECORD,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"rag.scope_settings",
        c"Settings that tell people apart who share one role, such as \"app.tenant, app.user_id\".",
        c"Their values are stored with every run and step, which are shown only where the values are the same; where one is unset, nothing is shown. Empty, the role alone decides. Meant for ALTER DATABASE ... SET.",
        &SCOPE_SETTINGS,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"rag.worker",
        c"Whether background workers keep collections current.",
        c"Off, they end; writes are still captured, and embedded when it is on again. Takes effect on reload.",
        &WORKER,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"rag.workers",
        c"How many background workers a database with collections has.",
        c"They share its queue. More than one helps where chunk tables are large, or local models compute. Each takes a slot of max_worker_processes, and keeps as many requests under way as a server's max_in_flight allows. Takes effect on reload.",
        &WORKERS,
        1,
        MAX_WORKERS,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"rag.exact_search_size",
        c"Collections whose index of embeddings is no larger are searched without it, by comparing every text.",
        c"Up to the default that takes about as long, and nothing is overlooked. 0 means that the index is always used.",
        &EXACT_SEARCH_SIZE,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"rag.max_input_bytes",
        c"Longest text that rag.embed and rag.search take; an array for rag.embed may have 16 times as much in all.",
        c"A longer text is refused before anything is spent on it. Models read no more than their first few thousand bytes, and computing is paid for by the server.",
        &MAX_INPUT_BYTES,
        1024,
        1 << 30,
        GucContext::Suset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_int_guc(
        c"rag.max_row_bytes",
        c"Most text of one source row that the worker embeds.",
        c"A row with more in its content and title columns is put among rag.failures. The worker needs some ten times as much memory. Takes effect on reload.",
        &MAX_ROW_BYTES,
        1024,
        1 << 30,
        GucContext::Sighup,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_int_guc(
        c"rag.worker_statement_timeout",
        c"How long code of a table's owner may keep the worker in one transaction.",
        c"Triggers, index expressions and policies of a collection's tables run there. It is cancelled then, and the collection pauses; where it survives that, the worker restarts. Comparing large tables is given more time. Takes effect on reload.",
        &WORKER_STATEMENT_TIMEOUT,
        100,
        3_600_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    crate::pg::catalog::reserve_setting_prefix();
}

/// `rag.embedding_model`.
pub fn embedding_model() -> String {
    text(&EMBEDDING_MODEL)
}

/// `rag.chat_model`.
pub fn chat_model() -> String {
    text(&CHAT_MODEL)
}

/// `rag.trusted_owners`: names of roles, as they are, without quotes.
pub fn trusted_owners() -> Vec<String> {
    let set = text(&TRUSTED_OWNERS);
    if set.is_empty() { Vec::new() } else { crate::pg::setting::names(&set).unwrap_or_default() }
}

/// `rag.record`.
pub fn record() -> Record {
    RECORD.get()
}

/// `rag.scope_settings`, as it was set.
pub fn scope_settings() -> String {
    text(&SCOPE_SETTINGS)
}

/// `rag.ask_timeout`; `None`: no limit.
pub fn ask_timeout() -> Option<Duration> {
    let ms = u64::from(ASK_TIMEOUT.get().unsigned_abs());
    (ms > 0).then(|| Duration::from_millis(ms))
}

/// `rag.require_grounding`.
pub fn require_grounding() -> bool {
    REQUIRE_GROUNDING.get()
}

/// `rag.exact_search_size`, in kB.
pub fn exact_search_size() -> u32 {
    EXACT_SEARCH_SIZE.get().unsigned_abs()
}

/// `rag.workers`: from 1 to 8.
pub fn workers() -> u32 {
    WORKERS.get().unsigned_abs()
}

/// `rag.max_input_bytes`.
pub fn max_input_bytes() -> usize {
    MAX_INPUT_BYTES.get().unsigned_abs() as usize
}

/// `rag.max_row_bytes`.
pub fn max_row_bytes() -> usize {
    MAX_ROW_BYTES.get().unsigned_abs() as usize
}

/// `rag.worker_statement_timeout`.
pub fn worker_statement_timeout() -> Duration {
    Duration::from_millis(WORKER_STATEMENT_TIMEOUT.get().unsigned_abs().into())
}

/// Where the models of server `local` are.
pub fn model_dir() -> PathBuf {
    let set = text(&MODEL_DIR);
    if set.is_empty() { crate::pg::catalog::share_dir().join("pg_ragent").join("models") } else { PathBuf::from(set) }
}

fn text(setting: &'static GucSetting<Option<CString>>) -> String {
    setting.get().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default()
}
