//! A private cluster: its own folder, its own socket, nobody else's data.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::installation::{Installation, stdout_of};
use crate::session::Session;
use crate::wait::{PATIENCE, wait_for};

/// The superuser of every cluster.
pub const SUPERUSER: &str = "postgres";

/// Settings of a cluster to be.
pub struct ClusterBuilder {
    preload: bool,
    settings: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl ClusterBuilder {
    /// Whether `shared_preload_libraries` names the extension (it does by default).
    pub fn preload(mut self, preload: bool) -> ClusterBuilder {
        self.preload = preload;
        self
    }

    /// A line of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> ClusterBuilder {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// A variable in the server's environment.
    pub fn environment(mut self, name: &str, value: &str) -> ClusterBuilder {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Makes the cluster and starts it.
    pub async fn start(self) -> Cluster {
        let installation = Installation::find();
        let folder = tempfile::Builder::new().prefix("ragent-").tempdir().expect("a temporary folder");
        installation.give_to_server(folder.path());
        let mut cluster = Cluster {
            guard: Some(Guard::over(folder.path())),
            folder,
            installation,
            postmaster: Mutex::new(None),
            environment: self.environment,
        };
        cluster.initialise();
        cluster.configure(self.preload, &self.settings);
        cluster.start().await;
        cluster
    }
}

/// A running cluster; dropping it, or the end of the process in any way, stops it and removes its folder.
pub struct Cluster {
    // Fields are dropped in order: the guard must not outlive the folder it removes.
    guard: Option<Guard>,
    folder: TempDir,
    /// The PostgreSQL it runs.
    pub installation: Installation,
    postmaster: Mutex<Option<Child>>,
    environment: Vec<(String, String)>,
}

/// How to stop a server.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// Ends sessions and shuts down cleanly.
    Fast,
    /// Ends at once; the next start recovers.
    Immediate,
}

impl Cluster {
    /// A cluster with the usual settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder { preload: true, settings: Vec::new(), environment: Vec::new() }
    }

    /// Where the socket is: what `psql -h` and `host=` take.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What the server has logged so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("log")).expect("the server has a log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Adds a line to `postgresql.conf`; it counts from the next reload or restart.
    pub fn set(&self, name: &str, value: &str) {
        let path = self.data().join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("the configuration exists");
        writeln!(file, "{name} = '{}'", value.replace('\'', "''")).expect("the configuration can be written");
    }

    /// Has a stopped server start as a standby.
    pub fn become_standby(&self) {
        let path = self.data().join("standby.signal");
        std::fs::write(&path, "").expect("the data directory can be written");
        self.installation.give_to_server(&path);
    }

    /// How to connect to a database as a role.
    pub fn connection(&self, database: &str, role: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.socket_folder()).user(role).dbname(database).connect_timeout(Duration::from_secs(20));
        config
    }

    /// Connects to a database as a role; panics when it cannot.
    pub async fn connect(&self, database: &str, role: &str) -> Session {
        match Session::open(&self.connection(database, role)).await {
            Ok(session) => session,
            Err(error) => panic!("cannot connect to {database} as {role}: {error:?}\n{}", self.end_of_log()),
        }
    }

    /// The command `psql` for a database as the superuser, quiet and stopping at the first error.
    pub fn psql_command(&self, database: &str) -> Command {
        let mut psql = self.installation.program("psql");
        psql.env("PGHOST", self.socket_folder()).env("PGUSER", SUPERUSER).env("PGDATABASE", database);
        psql.env_remove("PGPORT").args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        psql
    }

    /// Runs SQL by psql as the superuser; the output, unaligned and without headings.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = self.psql_command(database).args(["-A", "-t", "-c", sql]).output().expect("psql can be started");
        stdout_of(&format!("psql: {sql}"), output)
    }

    /// Starts the server and waits until it takes connections.
    pub async fn start(&self) {
        let log = self.folder.path().join("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log file");
        let mut command = self.installation.server_program("postgres");
        command.arg("-D").arg(self.data()).envs(self.environment.iter().map(|(n, v)| (n, v)));
        // Out of the terminal's process group: Ctrl-C must reach the test first.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log).env("LC_MESSAGES", "C");
        let child = command.spawn().expect("the server can be started");
        *self.postmaster() = Some(child);
        wait_for("the server to take connections", PATIENCE, || async {
            assert!(self.is_running(), "the server ended while starting:\n{}", self.end_of_log());
            Session::open(&self.connection("postgres", SUPERUSER)).await.ok()
        })
        .await;
    }

    /// Stops the server; panics if it has not ended within `limit`.
    pub async fn stop(&self, how: Stop, limit: Duration) {
        self.signal(match how {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        });
        self.wait_for_end(&format!("{how:?} shutdown"), limit).await;
    }

    /// Stops the server and starts it again.
    pub async fn restart(&self, how: Stop) {
        self.stop(how, PATIENCE).await;
        self.start().await;
    }

    /// Kills the postmaster alone, as the kernel does when memory runs out; its children are left to notice.
    pub async fn kill_postmaster(&self) {
        self.signal(Signal::KILL);
        self.wait_for_end("a killed postmaster", PATIENCE).await;
    }

    /// Reads the configuration again.
    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// Whether the postmaster runs.
    pub fn is_running(&self) -> bool {
        let mut postmaster = self.postmaster();
        match postmaster.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => true,
            Some(_) => {
                *postmaster = None;
                false
            }
            None => false,
        }
    }

    async fn wait_for_end(&self, what: &str, limit: Duration) {
        wait_for(what, limit, || async { (!self.is_running()).then_some(()) }).await;
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Child>> {
        self.postmaster.lock().expect("no panic while the postmaster is locked")
    }

    fn signal(&self, signal: Signal) {
        let pid = self.postmaster().as_ref().map(|child| child.id() as i32).expect("the server runs");
        kill(pid, signal);
    }

    fn initialise(&mut self) {
        let mut initdb = self.installation.server_program("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]);
        initdb.arg("-U").arg(SUPERUSER).arg("-D").arg(self.data());
        stdout_of("initdb", initdb.output().expect("initdb can be started"));
    }

    fn configure(&self, preload: bool, settings: &[(String, String)]) {
        let folder = self.socket_folder().to_str().expect("temporary folders have plain names").to_owned();
        let mut usual = vec![
            ("listen_addresses", String::new()),
            ("unix_socket_directories", folder),
            ("max_connections", "100".into()),
            ("max_worker_processes", "64".into()),
            ("fsync", "off".into()),
            ("shared_buffers", "64MB".into()),
            ("log_line_prefix", "%m [%p] %b %d ".into()),
            ("autovacuum_naptime", "1h".into()),
        ];
        if preload {
            usual.push(("shared_preload_libraries", "pg_ragent".into()));
        }
        if let Ok(models) = std::env::var("RAGENT_MODEL_DIR") {
            usual.push(("rag.model_dir", models));
        }
        for (name, value) in usual {
            self.set(name, &value);
        }
        for (name, value) in settings {
            self.set(name, value);
        }
    }

    /// The last lines of the log, for messages.
    pub fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the server's log ---\n{}", self.end_of_log());
        }
        if let Some(guard) = self.guard.take() {
            guard.end();
        }
        if let Some(mut postmaster) = self.postmaster().take() {
            let _ = postmaster.wait();
        }
    }
}

/// A process that stops the server and removes the folder when this one is gone.
///
/// It reads a pipe that only we hold: however we end, it sees the end of the pipe.
struct Guard {
    process: Child,
    pipe: ChildStdin,
}

const GUARD: &str = r#"
read -r never
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
    kill -QUIT "$pid" 2>/dev/null
    tries=0
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
        [ "$tries" = 200 ] && kill -KILL "$pid"
        # A zombie that its parent has yet to reap counts as gone.
        case $(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null) in Z) break ;; esac
    done
fi
rm -rf "$0"
"#;

impl Guard {
    fn over(folder: &Path) -> Guard {
        let mut command = Command::new("sh");
        command.arg("-c").arg(GUARD).arg(folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().expect("sh can be started");
        let pipe = process.stdin.take().expect("stdin was piped");
        Guard { process, pipe }
    }

    fn end(self) {
        drop(self.pipe);
        let mut process = self.process;
        let _ = process.wait();
    }
}

/// Sends a signal to a process of the cluster; that it is gone already is not an error.
pub fn kill(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process id is positive");
    let _ = kill_process(pid, signal);
}

/// Whether a process runs; one that has ended and only waits for its parent to notice does not.
pub fn exists(pid: i32) -> bool {
    let alive = Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
    // "pid (name) S ...": the state follows the last parenthesis.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_zombie = state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    alive && !is_zombie
}
