//! Source tables: of many shapes, with rows that policies can tell apart.

use ragent_server_tests::database::{literal, quote};
use ragent_server_tests::random::Random;

use super::names;

/// A type of a column, and how values of it are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Int,
    Bigint,
    Text,
    Varchar,
    Char,
    Uuid,
    Date,
    Timestamptz,
    Numeric,
    Bytea,
    Bool,
    Jsonb,
    TextArray,
}

const KEY_TYPES: [Type; 11] = [
    Type::Int,
    Type::Int,
    Type::Bigint,
    Type::Text,
    Type::Text,
    Type::Varchar,
    Type::Char,
    Type::Uuid,
    Type::Date,
    Type::Timestamptz,
    Type::Bytea,
];

const METADATA_TYPES: [Type; 9] = [
    Type::Int,
    Type::Text,
    Type::Date,
    Type::Timestamptz,
    Type::Numeric,
    Type::Bool,
    Type::Jsonb,
    Type::TextArray,
    Type::Uuid,
];

impl Type {
    fn sql(self) -> &'static str {
        match self {
            Type::Int => "int",
            Type::Bigint => "bigint",
            Type::Text => "text",
            Type::Varchar => "varchar(4000)",
            Type::Char => "char(8)",
            Type::Uuid => "uuid",
            Type::Date => "date",
            Type::Timestamptz => "timestamptz",
            Type::Numeric => "numeric",
            Type::Bytea => "bytea",
            Type::Bool => "bool",
            Type::Jsonb => "jsonb",
            Type::TextArray => "text[]",
        }
    }

    /// The n-th value of the type, as an SQL expression; different for different n where the type allows it.
    fn value(self, n: usize) -> String {
        match self {
            Type::Int => n.to_string(),
            Type::Bigint => format!("{n}000000000001"),
            Type::Text | Type::Varchar => literal(&format!("{}'\"\\ {{ü}}", n)),
            Type::Char => literal(&format!("c{n}")),
            Type::Uuid => format!("md5('{n}')::uuid"),
            Type::Date => format!("date '1999-12-20' + {n}"),
            Type::Timestamptz => format!("timestamptz '2024-03-30 12:00:00.5+00' + {n} * interval '7 hours'"),
            Type::Numeric => format!("{n}.50"),
            Type::Bytea => format!("decode(md5('{n}'), 'hex')"),
            Type::Bool => n.is_multiple_of(2).to_string(),
            Type::Jsonb => literal(&format!("{{\"n\": [{n}, null, \"x\"]}}")),
            Type::TextArray => format!("ARRAY['a', NULL, '{n}']"),
        }
    }
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub of: Type,
}

/// How rows are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// In three partitions by hash of the first key column.
    ByHash,
    /// In partitions by tenant, one of them the default.
    ByTenant,
}

/// A source, as it is registered. Columns are named by their places in `columns`.
#[derive(Debug, Clone)]
pub struct Table {
    pub schema: String,
    pub name: String,
    pub collection: String,
    pub kind: Kind,
    /// Its owner's place among the roles; `None` is the superuser.
    pub owner: Option<usize>,
    pub columns: Vec<Column>,
    pub keys: Vec<usize>,
    pub content: Vec<usize>,
    pub title: Option<usize>,
    pub link: Option<usize>,
    pub metadata: Vec<usize>,
    /// What policies look at: a tenant's name, a role's name, a number from 0 to 5.
    pub tenant: usize,
    pub author: usize,
    pub level: usize,
    /// Names of its policies.
    pub policies: Vec<String>,
    /// Names of partitions.
    pub partitions: Vec<String>,
    /// The chunk table, quoted and qualified, its OID, and its key columns.
    pub chunk_table: String,
    pub chunk_table_oid: String,
    pub chunk_keys: Vec<String>,
    /// So many rows were ever made.
    pub made: usize,
}

/// Tenants that rows belong to.
pub const TENANTS: [&str; 4] = ["north", "south", "o'est", ""];

const WORDS: [&str; 16] = [
    "red", "green", "blue", "restore", "backup", "kitchen", "holiday", "invoice", "price", "door", "window", "tree",
    "lamp", "größe", "árbol", "日本",
];

impl Table {
    /// A table of random shape, not made yet; `others` have names already.
    pub fn random(random: &mut Random, schema: &str, owner: Option<usize>, others: &[Table]) -> Table {
        let taken: Vec<String> = others.iter().map(|t| t.name.clone()).collect();
        let name = names::new(random, &taken);
        let taken: Vec<String> = others.iter().map(|t| t.collection.clone()).collect();
        let collection = names::new(random, &taken);
        let kind = random.choose(&[Kind::Plain, Kind::Plain, Kind::ByHash, Kind::ByTenant]);
        let mut columns: Vec<Column> = Vec::new();
        let mut column = |random: &mut Random, of: Type| {
            let taken: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
            columns.push(Column { name: names::new(random, &taken), of });
            columns.len() - 1
        };
        let mut keys = vec![random.choose(&KEY_TYPES)].into_iter().map(|of| column(random, of)).collect::<Vec<_>>();
        let (tenant, author, level) =
            (column(random, Type::Text), column(random, Type::Text), column(random, Type::Int));
        match kind {
            Kind::ByTenant => keys.insert(random.below(2), tenant),
            _ if random.below(3) == 0 => {
                let of = random.choose(&KEY_TYPES);
                let second = column(random, of);
                keys.push(second);
            }
            _ => {}
        }
        let content_type = random.choose(&[Type::Text, Type::Text, Type::Varchar]);
        let mut content = vec![column(random, content_type)];
        if random.below(3) == 0 {
            let of = random.choose(&[Type::Text, Type::Date]);
            content.push(column(random, of));
        }
        let title = (random.below(2) == 0).then(|| {
            let of = random.choose(&[Type::Text, Type::Int, Type::Date]);
            column(random, of)
        });
        let link = (random.below(3) == 0).then(|| column(random, Type::Text));
        let mut metadata: Vec<usize> = (0..random.below(3))
            .map(|_| {
                let of = random.choose(&METADATA_TYPES);
                column(random, of)
            })
            .collect();
        if random.below(3) == 0 {
            metadata.push(tenant);
        }
        Table {
            schema: schema.to_owned(),
            name,
            collection,
            kind,
            owner,
            columns,
            keys,
            content,
            title,
            link,
            metadata,
            tenant,
            author,
            level,
            policies: Vec::new(),
            partitions: Vec::new(),
            chunk_table: String::new(),
            chunk_table_oid: String::new(),
            chunk_keys: Vec::new(),
            made: 0,
        }
    }

    /// Its name, qualified and quoted.
    pub fn sql(&self) -> String {
        names::qualified(&self.schema, &self.name)
    }

    /// A column's name, quoted.
    pub fn column(&self, place: usize) -> String {
        quote(&self.columns[place].name)
    }

    fn list(&self, places: &[usize]) -> String {
        places.iter().map(|p| self.column(*p)).collect::<Vec<_>>().join(", ")
    }

    /// The statements that make it.
    pub fn create(&mut self) -> String {
        let definitions: Vec<String> =
            self.columns.iter().map(|c| format!("{} {}", quote(&c.name), c.of.sql())).collect();
        let partitioned = match self.kind {
            Kind::Plain => String::new(),
            Kind::ByHash => format!(" PARTITION BY HASH ({})", self.column(self.keys[0])),
            Kind::ByTenant => format!(" PARTITION BY LIST ({})", self.column(self.tenant)),
        };
        let mut sql = format!(
            "CREATE TABLE {} ({}, PRIMARY KEY ({})){partitioned};",
            self.sql(),
            definitions.join(", "),
            self.list(&self.keys)
        );
        let bounds: Vec<String> = match self.kind {
            Kind::Plain => Vec::new(),
            Kind::ByHash => (0..3).map(|n| format!("FOR VALUES WITH (MODULUS 3, REMAINDER {n})")).collect(),
            Kind::ByTenant => vec![format!("FOR VALUES IN ({})", literal(TENANTS[0])), "DEFAULT".into()],
        };
        for (n, bound) in bounds.iter().enumerate() {
            let partition = names::qualified(&self.schema, &format!("{} part {n}", self.name));
            sql.push_str(&format!("CREATE TABLE {partition} PARTITION OF {} {bound};", self.sql()));
            self.partitions.push(partition);
        }
        sql
    }

    /// The statement that registers it.
    pub fn register(&self) -> String {
        let text = |place: Option<usize>| place.map_or("NULL".into(), |p| literal(&self.columns[p].name));
        let array = |places: &[usize]| {
            let names: Vec<String> = places.iter().map(|p| literal(&self.columns[*p].name)).collect();
            format!("ARRAY[{}]::text[]", names.join(", "))
        };
        format!(
            "SELECT rag.create_collection({}, {}, {}, title => {}, link => {}, metadata => {},
                    embedding_model => 'fake/embed-8', chunk_tokens => 16, chunk_overlap => 4)",
            literal(&self.collection),
            literal(&self.sql()),
            array(&self.content),
            text(self.title),
            text(self.link),
            array(&self.metadata),
        )
    }

    /// The statement that adds so many rows; `authors` are names of roles.
    pub fn insert(&mut self, random: &mut Random, count: usize, authors: &[String]) -> String {
        let rows: Vec<String> = (0..count)
            .map(|_| {
                self.made += 1;
                let values: Vec<String> = (0..self.columns.len()).map(|p| self.value(random, p, authors)).collect();
                format!("({})", values.join(", "))
            })
            .collect();
        format!("INSERT INTO {} VALUES {}", self.sql(), rows.join(", "))
    }

    fn value(&self, random: &mut Random, place: usize, authors: &[String]) -> String {
        let of = self.columns[place].of;
        if place == self.tenant {
            return literal(random.choose(&TENANTS));
        }
        if place == self.author {
            return literal(random.pick(authors).as_str());
        }
        if place == self.level {
            return random.below(6).to_string();
        }
        if self.keys.contains(&place) {
            return of.value(self.made);
        }
        if self.content.contains(&place) && of != Type::Date {
            return words(random);
        }
        match random.below(5) {
            0 => "NULL".into(),
            _ => of.value(random.below(100)),
        }
    }

    /// A value for its first key column that no row has had.
    pub fn new_key(&mut self) -> String {
        self.made += 1;
        self.columns[self.keys[0]].of.value(self.made)
    }

    /// A text for its first content column.
    pub fn new_content(&self, random: &mut Random) -> String {
        words(random)
    }

    /// A new value for one of its metadata columns (or its link), with the column; none where it has none.
    pub fn new_metadata(&self, random: &mut Random) -> Option<(String, String)> {
        let free: Vec<usize> = self.metadata.iter().copied().chain(self.link).filter(|p| *p != self.tenant).collect();
        let place = *free.get(random.below(free.len().max(1)))?;
        Some((self.column(place), self.columns[place].of.value(random.below(100))))
    }

    /// A condition that some rows fulfil, which do not depend on the state of anything else.
    pub fn some_rows(&self, random: &mut Random) -> String {
        let level = random.below(6);
        match random.below(3) {
            0 => format!("{} = {level}", self.column(self.level)),
            1 => format!("hashtext({}::text) % 5 = {}", self.column(self.keys[0]), random.below(5)),
            _ => format!("{} = {}", self.column(self.tenant), literal(random.choose(&TENANTS))),
        }
    }

    /// The key's values as a JSON array, of a row whose columns are called so.
    pub fn key_values(names: &[String]) -> String {
        let columns: Vec<String> = names.iter().map(|n| quote(n)).collect();
        format!("pg_catalog.jsonb_build_array({})", columns.join(", "))
    }

    /// The names of the key columns.
    pub fn key_names(&self) -> Vec<String> {
        self.keys.iter().map(|p| self.columns[*p].name.clone()).collect()
    }

    /// The values of what is embedded, content columns and then the title, as a JSON array.
    pub fn content_values(&self) -> String {
        let embedded: Vec<usize> = self.content.iter().chain(&self.title).copied().collect();
        format!("pg_catalog.jsonb_build_array({})", self.list(&embedded))
    }

    /// The title as text.
    pub fn title_value(&self) -> String {
        self.title.map_or("NULL".into(), |place| format!("{}::text", self.column(place)))
    }

    /// Title, link and metadata as `rag.search` shows them, separated by commas.
    pub fn shown_values(&self) -> String {
        let text = |place: Option<usize>| place.map_or("NULL".into(), |p| format!("{}::text", self.column(p)));
        let pairs: Vec<String> =
            self.metadata.iter().map(|p| format!("{}, {}", literal(&self.columns[*p].name), self.column(*p))).collect();
        let metadata = match pairs.len() {
            0 => "NULL".into(),
            _ => format!("pg_catalog.jsonb_build_object({})", pairs.join(", ")),
        };
        format!("{}, {}, {metadata}", text(self.title), text(self.link))
    }

    /// A list, in parentheses, of the columns that the collection uses, or of all of them but one.
    pub fn some_used(&self, random: &mut Random) -> String {
        let mut used: Vec<usize> = self.keys.iter().chain(&self.content).chain(&self.metadata).copied().collect();
        used.extend(self.title.iter().chain(&self.link));
        // One of the last is only shown, not searched: its absence is the easiest to overlook.
        match random.below(4) {
            0 => _ = used.remove(random.below(used.len())),
            1 | 2 => _ = used.pop(),
            _ => {}
        }
        used.sort_unstable();
        used.dedup();
        format!("({})", self.list(&used))
    }
}

/// Texts that many rows have.
const REPEATED: [&str; 3] = ["red door", "Please do not reply.", "backup of the kitchen door"];

/// A text: mostly short, sometimes of several chunks, often one that others have, now and then missing or blank.
fn words(random: &mut Random) -> String {
    if random.below(3) == 0 {
        return literal(random.choose(&REPEATED));
    }
    let count = match random.below(20) {
        0 => return "NULL".into(),
        1 => return "'  '".into(),
        2..5 => 20 + random.below(40),
        _ => 2 + random.below(6),
    };
    let mut text = String::new();
    for n in 1..=count {
        text.push_str(random.choose(&WORDS));
        text.push_str(if n % 9 == 0 { ". " } else { " " });
    }
    literal(text.trim_end())
}
