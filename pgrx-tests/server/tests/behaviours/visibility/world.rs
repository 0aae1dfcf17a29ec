//! A database with roles, tables and policies of random kinds, and the sessions that ask in it.

use ragent_server_tests::database::{Database, current, literal, quote};
use ragent_server_tests::provider::control::FaultKind;
use ragent_server_tests::random::Random;
use ragent_server_tests::session::Session;

use super::asker::{self, Asker, Seat, Voice};
use super::change::{Change, Effect};
use super::check::{Look, Outcome};
use super::model::Model;
use super::names;
use super::policy::{HELPING_OBJECTS, Policy};
use super::search;
use super::stored::{self, Stored};
use super::table::Table;

const ROLES: usize = 6;
const TABLES: usize = 3;
const SUPERUSERS: usize = 2;

/// Settings of every session that asks. The tables are small, but searched by the index. An index scan looks at all there is, since how near it comes to that is not the question
/// here; and plans that a session is kept from making cost so much that they would be compiled.
const SESSION: &str = "SET search_path = helpers, public; SET hnsw.ef_search = 1000; SET jit = off;
                       SET rag.exact_search_size = 0";

/// A session that asks, and which of its searches are prepared.
struct Place {
    session: Session,
    prepared: Vec<usize>,
}

/// Everything that one run of cases shares.
pub struct World {
    random: Random,
    model: Model,
    stored: Vec<Stored>,
    /// How to make it again, and what was done in it, for whoever looks into a failure.
    told: String,
    journal: Vec<String>,
    admin: Session,
    roles: Vec<Place>,
    superusers: Vec<Place>,
    // Dropped last: sessions must be gone before.
    database: Database<'static>,
}

impl World {
    /// Makes the one of a number and a seed.
    pub async fn new(seed: u64, number: usize) -> World {
        let mut random = Random::new(seed ^ (number as u64) << 32);
        let database = Database::new().await;
        let mut names = Vec::new();
        for n in 0..ROLES {
            // Only names that connect: what a client cannot send is no name here.
            let purpose = format!("{n} {}", names::any(&mut random));
            names.push(database.create_role(&purpose).await);
        }
        let admin = database.connect().await;
        let schema = format!("{} of it", names::any(&mut random));
        let model = Model { roles: names, tables: Vec::new() };
        let mut world = World {
            random,
            model,
            stored: Vec::new(),
            told: format!("RAGENT_SEED={seed} RAGENT_WORLD={number}"),
            journal: Vec::new(),
            admin,
            roles: Vec::new(),
            superusers: Vec::new(),
            database,
        };
        world.do_as_admin(&format!("CREATE SCHEMA {}; {HELPING_OBJECTS}", quote(&schema))).await;
        world.make_roles(&schema).await;
        for n in 0..TABLES {
            let owner = (n == 1).then_some(0);
            world.make_table(&schema, owner).await;
        }
        world.embed().await;
        for n in 0..ROLES {
            let session = world.database.connect_as(&world.model.roles[n]).await;
            session.run(SESSION).await;
            world.roles.push(Place { session, prepared: Vec::new() });
        }
        for _ in 0..SUPERUSERS {
            let session = world.database.connect().await;
            session.run(SESSION).await;
            world.superusers.push(Place { session, prepared: Vec::new() });
        }
        world
    }

    async fn make_roles(&mut self, schema: &str) {
        let roles = self.model.roles.clone();
        let mut sql = String::new();
        for (n, role) in roles.iter().enumerate() {
            let name = quote(role);
            sql.push_str(&format!("GRANT USAGE ON SCHEMA {} TO {name};", quote(schema)));
            sql.push_str(&asker::create_definer_function(n, role));
            sql.push(';');
            if n > 0 && self.random.below(3) == 0 {
                sql.push_str(&format!("GRANT {} TO {name};", quote(&roles[self.random.below(n)])));
            }
            let tenant = literal(self.random.choose(&super::table::TENANTS));
            sql.push_str(&format!("INSERT INTO helpers.seats VALUES ({}, {tenant});", literal(role)));
        }
        sql.push_str(&format!("GRANT CREATE ON SCHEMA {} TO {};", quote(schema), quote(&roles[0])));
        sql.push_str("CREATE POLICY own ON helpers.reading USING (reader = current_user)");
        self.do_as_admin(&sql).await;
    }

    async fn make_table(&mut self, schema: &str, owner: Option<usize>) {
        let mut table = Table::random(&mut self.random, schema, owner, &self.model.tables);
        let place = self.model.tables.len();
        let roles = self.model.roles.clone();
        let count = 30 + self.random.below(60);
        let mut sql = table.create();
        sql.push_str(&table.insert(&mut self.random, count, &roles));
        if let Some(owner) = owner {
            sql = format!("SET ROLE {}; {sql}; {}; RESET ROLE", quote(&roles[owner]), table.register());
        } else {
            sql = format!("{sql}; {}", table.register());
        }
        self.do_as_admin(&sql).await;
        let name = literal(&table.collection);
        let facts = format!("SELECT chunk_table, chunk_table::oid FROM rag.collections WHERE name = {name}");
        let facts = self.admin.rows(&facts).await.remove(0);
        table.chunk_table = facts[0].clone().expect("it has a chunk table");
        table.chunk_table_oid = facts[1].clone().expect("it has a chunk table");
        let keys = format!(
            "SELECT unnest(g.chunk_key_columns) FROM rag_internal.generation g WHERE g.chunk_table::oid = {}",
            table.chunk_table_oid
        );
        table.chunk_keys = self.admin.column(&keys).await;
        self.do_as_admin(&search::create_function(place, &table.collection)).await;
        for role in &roles {
            let columns = if self.random.below(3) == 0 { table.some_used(&mut self.random) } else { String::new() };
            if self.random.below(6) > 0 {
                self.do_as_admin(&format!("GRANT SELECT {columns} ON {} TO {}", table.sql(), quote(role))).await;
            }
        }
        for _ in 0..1 + self.random.below(3) {
            let policy = Policy::random(&mut self.random, &table, &roles);
            self.do_as_admin(&policy.create(&table)).await;
            table.policies.push(policy.name);
        }
        if self.random.below(3) > 0 {
            self.do_as_admin(&format!("ALTER TABLE {} ENABLE ROW LEVEL SECURITY", table.sql())).await;
        }
        self.model.tables.push(table);
    }

    /// Runs one case: something changes, and somebody looks.
    pub async fn case(&mut self, number: usize) -> Result<Outcome, String> {
        self.journal.push(format!("-- case {number}"));
        let place = self.model.any_table(&mut self.random);
        match self.random.below(10) {
            0..6 => self.after_a_change(place).await,
            6..9 => self.within_a_change(place).await,
            _ => self.behind_a_change(place).await,
        }
    }

    /// The change is committed; sometimes its rows are not embedded yet.
    async fn after_a_change(&mut self, place: usize) -> Result<Outcome, String> {
        let change = Change::random(&mut self.random, &mut self.model, place);
        let is_held = change.effect == Effect::Embedding && self.random.below(2) == 0;
        if is_held {
            self.database.provider.break_down(FaultKind::HangBeforeHeaders);
        }
        self.do_as_admin(&change.sql).await;
        if change.effect == Effect::Embedding && !is_held {
            self.embed().await;
        }
        let mut outcome = Outcome::None;
        for _ in 0..1 + self.random.below(2) {
            let asker = Asker::any(&mut self.random, &self.model, SUPERUSERS);
            // A text to search for would hang as well.
            outcome = self.look(place, &self.model.clone(), asker, false, !is_held).await?;
        }
        if is_held {
            self.database.provider.heal();
            self.embed().await;
        }
        Ok(outcome)
    }

    /// The change is made by the transaction that looks, and is undone.
    async fn within_a_change(&mut self, place: usize) -> Result<Outcome, String> {
        let seat = self.random.below(SUPERUSERS);
        let mut model = self.model.clone();
        let change = match self.random.below(6) {
            0 => Change::rough(&mut self.random, &model.tables[place]),
            _ => Change::random(&mut self.random, &mut model, place),
        };
        self.do_as_superuser(seat, "BEGIN").await;
        self.do_as_superuser(seat, &change.sql).await;
        let asker = Asker::in_transaction(&mut self.random, &model, Seat::Superuser(seat));
        let outcome = self.look(place, &model, asker, true, true).await;
        self.do_as_superuser(seat, "ROLLBACK").await;
        outcome
    }

    /// The change is committed by others, behind the snapshot of the transaction that looks.
    async fn behind_a_change(&mut self, place: usize) -> Result<Outcome, String> {
        let seat = self.random.below(SUPERUSERS);
        let access = self.random.choose(&["", "READ ONLY"]);
        self.do_as_superuser(seat, &format!("BEGIN ISOLATION LEVEL REPEATABLE READ {access}")).await;
        self.do_as_superuser(seat, "SELECT count(*) FROM pg_am").await;
        let change = Change::random(&mut self.random, &mut self.model, place);
        self.do_as_admin(&change.sql).await;
        if change.effect == Effect::Embedding {
            current(&self.admin).await;
        }
        let asker = Asker::in_transaction(&mut self.random, &self.model, Seat::Superuser(seat));
        let outcome = self.look(place, &self.model.clone(), asker, true, true).await;
        self.do_as_superuser(seat, "ROLLBACK").await;
        if change.effect == Effect::Embedding {
            self.embed().await;
        }
        outcome
    }

    async fn look(
        &mut self,
        table: usize,
        model: &Model,
        asker: Asker,
        in_transaction: bool,
        by_text: bool,
    ) -> Result<Outcome, String> {
        self.journal.push(format!("-- {:?} looks at {:?}: {:?}", asker.seat, model.tables[table].collection, asker));
        let place = match asker.seat {
            Seat::Role(n) => &mut self.roles[n],
            Seat::Superuser(n) => &mut self.superusers[n],
        };
        let voice = Voice { session: &place.session, asker: &asker, in_transaction };
        for statement in &asker.enter {
            // A role that is no member stays who it is.
            let _ = voice.run(statement).await;
        }
        let mut look = Look { voice, model, stored: &self.stored, prepared: &mut place.prepared, by_text };
        let outcome = look.check(&mut self.random, table).await;
        for statement in &asker.leave {
            place.session.run(statement).await;
        }
        outcome
    }

    /// Waits until everything is embedded, and reads what there is.
    async fn embed(&mut self) {
        current(&self.admin).await;
        self.stored.clear();
        for table in &self.model.tables {
            self.stored.push(stored::read(&self.admin, table).await);
        }
    }

    async fn do_as_admin(&mut self, sql: &str) {
        self.journal.push(format!("{sql};"));
        self.admin.run(sql).await;
    }

    async fn do_as_superuser(&mut self, seat: usize, sql: &str) {
        self.journal.push(format!("/* superuser {seat} */ {sql};"));
        self.superusers[seat].session.run(sql).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let file = std::env::temp_dir().join(format!("ragent-{}.sql", self.told.replace(' ', "-")));
            let written = std::fs::write(&file, self.journal.join("\n"));
            eprintln!("a random world: {}; what was done in it: {} {written:?}", self.told, file.display());
        }
    }
}
