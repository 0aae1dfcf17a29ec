//! Who asks, and how a session comes to ask as that role.

use ragent_server_tests::database::{literal, quote};
use ragent_server_tests::random::Random;
use ragent_server_tests::session::{Session, TextRow, describe};

use super::model::Model;
use super::table::TENANTS;

/// Which connection asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seat {
    /// That of a role, which logged in.
    Role(usize),
    /// One of the superuser's.
    Superuser(usize),
}

/// How a session comes to ask as a role.
#[derive(Debug, Clone)]
pub struct Asker {
    pub seat: Seat,
    /// Statements before asking and after it.
    pub enter: Vec<String>,
    pub leave: Vec<String>,
    /// A function with the rights of its owner, which asks.
    pub definer: Option<String>,
}

/// The name of the function that asks as a role, whoever calls it.
pub fn definer_function(role: usize) -> String {
    format!("helpers.ask_as_{role}")
}

/// The statements that make it.
pub fn create_definer_function(role: usize, name: &str) -> String {
    let function = definer_function(role);
    format!(
        "CREATE FUNCTION {function}(statement text) RETURNS SETOF text LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS
            $$ BEGIN RETURN QUERY EXECUTE statement; END $$;
         ALTER FUNCTION {function}(text) OWNER TO {}",
        quote(name)
    )
}

impl Asker {
    /// Any role in any way, in a session without a transaction.
    pub fn any(random: &mut Random, model: &Model, superusers: usize) -> Asker {
        let role = random.below(model.roles.len());
        let name = quote(&model.roles[role]);
        let by_superuser = Seat::Superuser(random.below(superusers));
        let mut asker = Asker { seat: Seat::Role(role), enter: Vec::new(), leave: Vec::new(), definer: None };
        match random.below(8) {
            0..3 => {}
            3 | 4 => {
                asker.seat = by_superuser;
                asker.enter.push(format!("SET ROLE {name}"));
                asker.leave.push("RESET ROLE".into());
            }
            5 => {
                asker.seat = by_superuser;
                asker.enter.push(format!("SET SESSION AUTHORIZATION {name}"));
                asker.leave.push("RESET SESSION AUTHORIZATION".into());
            }
            6 => {
                // Where it is no member it stays who it is.
                let other = quote(random.pick(&model.roles).as_str());
                asker.enter.push(format!("SET ROLE {other}"));
                asker.leave.push("RESET ROLE".into());
            }
            _ => {
                let caller = random.below(model.roles.len());
                asker.seat = Seat::Role(caller);
                asker.definer = Some(definer_function(role));
            }
        }
        asker.with_tenant(random, "SET")
    }

    /// Any role, in a superuser's session that has begun a transaction.
    pub fn in_transaction(random: &mut Random, model: &Model, seat: Seat) -> Asker {
        let name = quote(random.pick(&model.roles).as_str());
        let mut asker = Asker { seat, enter: Vec::new(), leave: Vec::new(), definer: None };
        match random.below(5) {
            0 => asker.definer = Some(definer_function(random.below(model.roles.len()))),
            1 => asker.enter.push(format!("SET LOCAL SESSION AUTHORIZATION {name}")),
            _ => asker.enter.push(format!("SET LOCAL ROLE {name}")),
        }
        asker.with_tenant(random, "SET LOCAL")
    }

    /// Sets, or does not set, what policies by a setting look at.
    fn with_tenant(mut self, random: &mut Random, set: &str) -> Asker {
        let tenant = random.choose(&TENANTS);
        match random.below(4) {
            0 => {}
            1 => self.enter.push(format!("{set} app.tenants = {}", literal(&format!("{tenant},south")))),
            _ => self.enter.push(format!("{set} app.tenant = {}", literal(tenant))),
        }
        self
    }
}

/// What a statement gave: rows as text, or SQLSTATE and message.
pub type Answer = Result<Vec<TextRow>, (String, String)>;

/// A session in which a role asks.
pub struct Voice<'s> {
    pub session: &'s Session,
    pub asker: &'s Asker,
    /// Whether a transaction is open, which an error must not end.
    pub in_transaction: bool,
}

impl Voice<'_> {
    /// Runs a statement that gives one column of text, as the role.
    pub async fn ask(&self, sql: &str) -> Answer {
        match &self.asker.definer {
            Some(function) => self.run(&format!("SELECT * FROM {function}({})", literal(sql))).await,
            None => self.run(sql).await,
        }
    }

    /// Runs a statement of the session itself.
    pub async fn run(&self, sql: &str) -> Answer {
        if self.in_transaction {
            self.session.run("SAVEPOINT asked").await;
        }
        let answer = self.session.try_rows(sql).await;
        if self.in_transaction {
            let end = if answer.is_ok() { "RELEASE asked" } else { "ROLLBACK TO asked; RELEASE asked" };
            self.session.run(end).await;
        }
        answer.map_err(|e| {
            let code = e.as_db_error().map_or("none", |e| e.code().code());
            (code.to_owned(), describe(&e))
        })
    }
}
