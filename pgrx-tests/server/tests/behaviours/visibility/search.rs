//! How a search is written: the same question, by ways that plan it anew or keep a plan.

use ragent_server_tests::database::literal;
use ragent_server_tests::provider::embeddings::embed;
use ragent_server_tests::random::Random;

/// Length of all embeddings here.
pub const DIMENSIONS: usize = 8;

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// A text, to be embedded by the provider.
    ByText,
    /// A prepared statement of the session.
    Prepared,
    /// A function with the caller's rights.
    Function,
    /// A cursor; in transactions only.
    Cursor,
    /// Joined to other rows, so that it runs several times in one statement.
    Joined,
}

/// A search of one collection or of all.
#[derive(Debug, Clone)]
pub struct Search {
    pub form: Form,
    pub text: &'static str,
    pub vector: Vec<f32>,
    /// Its collection's place and name; `None` for all.
    pub collection: Option<(usize, String)>,
    pub k: usize,
    pub min_score: Option<f64>,
}

const TEXTS: [&str; 5] = ["red door", "restore a backup", "holiday in the kitchen", "日本 größe", "nothing of it"];

/// One row of `rag.search`, as a JSON array; a number of decimal digits whatever the session writes floats with.
const ROW: &str = "pg_catalog.jsonb_build_array(f.collection, f.key, f.chunk, f.content, f.title, f.link, f.metadata, \
                   f.score::pg_catalog.numeric)::pg_catalog.text";

impl Search {
    /// A search; `in_transaction` and `as_definer` say where it is to run.
    pub fn random(
        random: &mut Random,
        collection: Option<(usize, String)>,
        k: usize,
        in_transaction: bool,
        as_definer: bool,
    ) -> Search {
        let form = match random.below(12) {
            0..3 => Form::Plain,
            3 => Form::ByText,
            4..7 if !as_definer && collection.is_some() => Form::Prepared,
            7..10 if collection.is_some() => Form::Function,
            10 if in_transaction && !as_definer => Form::Cursor,
            11 => Form::Joined,
            _ => Form::Plain,
        };
        let text = random.choose(&TEXTS);
        let vector = match form {
            Form::ByText => embed(text, DIMENSIONS),
            _ => (0..DIMENSIONS).map(|_| random.below(1000) as f32 / 1000.0 + 0.001).collect(),
        };
        let min_score = (random.below(6) == 0).then(|| random.below(900) as f64 / 1000.0);
        Search { form, text, vector, collection, k, min_score }
    }

    /// What must have been run in the session before; once is enough.
    pub fn prepare(&self) -> Option<String> {
        let (place, name) = self.collection.as_ref()?;
        (self.form == Form::Prepared).then(|| {
            format!(
                "PREPARE search_{place} (public.vector, int, float8) AS
                 SELECT {ROW} FROM rag.search($1, {}, $2, $3) f",
                literal(name)
            )
        })
    }

    /// The statement.
    pub fn sql(&self) -> String {
        let vector: Vec<String> = self.vector.iter().map(f32::to_string).collect();
        let vector = format!("'[{}]'::public.vector", vector.join(","));
        let query = if self.form == Form::ByText { literal(self.text) } else { vector.clone() };
        let score = self.min_score.map_or("NULL".into(), |s| s.to_string());
        let place = self.collection.as_ref().map_or(0, |(place, _)| *place);
        let collection = self.collection.as_ref().map_or("NULL".into(), |(_, name)| literal(name));
        let plain = format!("SELECT {ROW} FROM rag.search({query}, {collection}, {}, {score}) f", self.k);
        match self.form {
            Form::Plain | Form::ByText => plain,
            Form::Prepared => format!("EXECUTE search_{place} ({vector}, {}, {score})", self.k),
            Form::Function => format!("SELECT * FROM helpers.search_{place}({vector}, {}, {score})", self.k),
            Form::Cursor => format!(
                "DECLARE found CURSOR FOR {plain}; FETCH 1 FROM found; FETCH ALL FROM found; CLOSE found"
            ),
            Form::Joined => format!(
                "SELECT min({ROW}) FROM (VALUES (1), (2)) v (n), LATERAL rag.search({query}, {collection}, {} + 0 * v.n, {score}) f
                 GROUP BY f.collection, f.key, f.chunk HAVING count(*) = 2 ORDER BY min(f.score) DESC",
                self.k
            ),
        }
    }
}

/// The statement that makes the function of a collection.
pub fn create_function(place: usize, collection: &str) -> String {
    format!(
        "CREATE FUNCTION helpers.search_{place}(query public.vector, k int, lowest float8) RETURNS SETOF text
            LANGUAGE plpgsql VOLATILE AS
            $f$ BEGIN RETURN QUERY SELECT {ROW} FROM rag.search(query, {}, k, lowest) f; END $f$",
        literal(collection)
    )
}
