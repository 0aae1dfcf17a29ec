//! One database of a shared cluster, with the extension and a provider of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::OnceCell;

use crate::cluster::{Cluster, SUPERUSER};
use crate::provider::FakeProvider;
use crate::session::Session;

/// The key the tests' provider is called with; it must never be seen anywhere.
pub const API_KEY: &str = "sk-planted-5ecret-4711";

static SHARED: OnceCell<Cluster> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(1);

/// The cluster that the tests of one process share: with the extension preloaded.
pub async fn shared_cluster() -> &'static Cluster {
    SHARED.get_or_init(|| Cluster::builder().start()).await
}

/// A database with the extension; server `fake` is the provider, usable by everybody.
pub struct Database<'c> {
    /// The cluster it is in.
    pub cluster: &'c Cluster,
    /// Its name.
    pub name: String,
    /// Its provider.
    pub provider: FakeProvider,
    roles: std::sync::Mutex<Vec<String>>,
}

impl Database<'static> {
    /// A database in the shared cluster.
    pub async fn new() -> Database<'static> {
        Database::in_cluster(shared_cluster().await).await
    }

    /// A database in the shared cluster, and a superuser's session in it.
    pub async fn open() -> (Database<'static>, Session) {
        let database = Database::new().await;
        let session = database.connect().await;
        (database, session)
    }
}

impl<'c> Database<'c> {
    /// A database in a cluster.
    pub async fn in_cluster(cluster: &'c Cluster) -> Database<'c> {
        let name = format!("t{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        Database::named(cluster, &name).await
    }

    /// A database with a name of one's own.
    pub async fn named(cluster: &'c Cluster, name: &str) -> Database<'c> {
        let database = Database {
            cluster,
            name: name.to_owned(),
            provider: FakeProvider::start(),
            roles: std::sync::Mutex::default(),
        };
        let postgres = cluster.connect("postgres", SUPERUSER).await;
        postgres.run(&format!("CREATE DATABASE {} TEMPLATE template0", quote(name))).await;
        let session = database.connect().await;
        session.run("CREATE EXTENSION pg_ragent CASCADE").await;
        session.run(&create_server("fake", &database.provider.base_url())).await;
        database
    }

    /// A superuser's session.
    pub async fn connect(&self) -> Session {
        self.cluster.connect(&self.name, SUPERUSER).await
    }

    /// A session of a role made by [`Database::create_role`].
    pub async fn connect_as(&self, role: &str) -> Session {
        self.cluster.connect(&self.name, role).await
    }

    /// Makes an ordinary role whose name is unique in the cluster, and gives that name.
    pub async fn create_role(&self, purpose: &str) -> String {
        let role = format!("{}_{purpose}", self.name);
        let session = self.connect().await;
        session.run(&format!("CREATE ROLE {} LOGIN", quote(&role))).await;
        self.roles.lock().expect("no panic while roles are locked").push(role.clone());
        role
    }

    /// A table of articles (`id`, `title`, `body`) with these bodies, numbered from 1, as a collection of the same name
    /// embedded by the fake provider, everything current.
    pub async fn create_collection(&self, session: &Session, name: &str, bodies: &[&str]) {
        session.run(&format!("CREATE TABLE {name} (id int PRIMARY KEY, title text, body text)")).await;
        for (n, body) in bodies.iter().enumerate() {
            let id = n + 1;
            session.run(&format!("INSERT INTO {name} VALUES ({id}, 'Article {id}', {})", literal(body))).await;
        }
        session
            .run(&format!(
                "SELECT rag.create_collection('{name}', '{name}', '{{body}}', title => 'title',
                                              embedding_model => 'fake/embed-384')"
            ))
            .await;
        current(session).await;
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // Workers and forgotten sessions must not keep it.
        self.provider.heal();
        let mut statements = vec![format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quote(&self.name))];
        for role in self.roles.lock().expect("no panic while roles are locked").iter() {
            statements.push(format!("DROP ROLE IF EXISTS {}", quote(role)));
        }
        if !self.cluster.is_running() {
            return;
        }
        for statement in &statements {
            let output = self.cluster.psql_command("postgres").arg("-c").arg(statement).output();
            let problem = match output {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            // A test that fails already keeps its own message.
            assert!(std::thread::panicking(), "cannot clean up: {statement}: {problem}");
        }
    }
}

/// The statements that make a server of a provider, usable by everybody.
pub fn create_server(name: &str, base_url: &str) -> String {
    format!(
        "CREATE SERVER {name} FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{base_url}');
         CREATE USER MAPPING FOR PUBLIC SERVER {name} OPTIONS (api_key '{API_KEY}');
         GRANT USAGE ON FOREIGN SERVER {name} TO PUBLIC;"
    )
}

/// Waits until every change is embedded.
pub async fn current(session: &Session) {
    let done = session.value("SELECT rag.wait_until_current(timeout => '60 s')").await;
    if done != "t" {
        let status = session.rows("SELECT * FROM rag.status").await;
        panic!("the collections are not current after 60 s: {status:?}");
    }
}

/// Waits until chunk tables may be read by those who were granted it on the source, and by nobody else; asks as a superuser.
pub async fn granted(admin: &Session) {
    const SQL: &str = "SELECT NOT EXISTS (SELECT FROM rag_internal.grants_due)
        AND NOT EXISTS (SELECT FROM rag_internal.grants_to_sync())";
    admin.wait_until("the grants of chunk tables", crate::wait::PATIENCE, SQL).await;
}

/// A name as an SQL identifier.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
