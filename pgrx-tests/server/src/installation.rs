//! The PostgreSQL under test and the operating-system user that runs it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A PostgreSQL installation, found through `PG_CONFIG` or the `pg_config` in the path.
pub struct Installation {
    bindir: PathBuf,
    /// The major version.
    pub major: u32,
    server_user: Option<(u32, u32)>,
}

impl Installation {
    /// Finds it; panics with what to do when there is none.
    pub fn find() -> Installation {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".into());
        let ask = |what: &str| {
            let output = Command::new(&pg_config)
                .arg(what)
                .output()
                .unwrap_or_else(|e| panic!("cannot run {pg_config}: {e}; set PG_CONFIG to the pg_config to test with"));
            stdout_of(&pg_config, output).trim().to_owned()
        };
        let version = ask("--version");
        let digits = version.split_whitespace().nth(1).unwrap_or("").split(|c: char| !c.is_ascii_digit()).next();
        let major = digits.and_then(|d| d.parse().ok()).unwrap_or_else(|| panic!("not a version: {version}"));
        Installation { bindir: ask("--bindir").into(), major, server_user: server_user() }
    }

    /// A program of the installation, run by whoever runs this test.
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.bindir.join(name))
    }

    /// A program of the installation, run by the user who may run a server: never root.
    pub fn server_program(&self, name: &str) -> Command {
        let mut command = self.program(name);
        if let Some((uid, gid)) = self.server_user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Hands a folder to the user who runs the server.
    pub fn give_to_server(&self, path: &Path) {
        if let Some((uid, gid)) = self.server_user {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root can give a folder away");
        }
    }
}

/// The output of a program that must succeed.
pub fn stdout_of(what: &str, output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} failed ({}): {errors}", output.status);
    String::from_utf8(output.stdout).unwrap_or_else(|_| panic!("{what} printed something that is not UTF-8"))
}

/// Root cannot run PostgreSQL, so the `postgres` user does; anybody else runs it as themselves.
fn server_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|f| f[0] == "postgres");
    let fields = fields.expect("root runs these tests as the user postgres, who does not exist: install postgresql");
    Some((fields[2].parse().expect("a user id"), fields[3].parse().expect("a group id")))
}
