//! What an event trigger is told of a command: a value of the type `pg_ddl_command`, which SQL cannot look into.

use pgrx::{FromDatum, IntoDatum, pg_sys};

/// A command that was carried out, valid while its event trigger runs.
pub struct DdlCommand(*const pg_sys::CollectedCommand);

impl FromDatum for DdlCommand {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        (!is_null).then(|| Self(datum.cast_mut_ptr()))
    }
}

impl IntoDatum for DdlCommand {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        Some(self.0.into())
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::PG_DDL_COMMANDOID
    }
}

impl DdlCommand {
    /// Whether it attached or detached partitions, or made a table, which may be one.
    pub fn changes_partitions(&self) -> bool {
        use pg_sys::AlterTableType as T;
        let attached = [T::AT_AttachPartition, T::AT_DetachPartition, T::AT_DetachPartitionFinalize];
        let is_new = matches!(self.tag(), pg_sys::NodeTag::T_CreateStmt | pg_sys::NodeTag::T_CreateForeignTableStmt);
        is_new || self.alters(&attached)
    }

    /// Whether it made or renamed a trigger, or said when triggers fire.
    pub fn changes_triggers(&self) -> bool {
        use pg_sys::AlterTableType as T;
        let switched = [
            T::AT_EnableTrig,
            T::AT_EnableAlwaysTrig,
            T::AT_EnableReplicaTrig,
            T::AT_DisableTrig,
            T::AT_EnableTrigAll,
            T::AT_DisableTrigAll,
            T::AT_EnableTrigUser,
            T::AT_DisableTrigUser,
        ];
        self.tag() == pg_sys::NodeTag::T_CreateTrigStmt || self.renames_trigger() || self.alters(&switched)
    }

    /// The columns to which it gave new values, computed from the old ones, say.
    pub fn rewritten_columns(&self) -> Vec<String> {
        use pg_sys::AlterTableType as T;
        let rewrites = |what| match what {
            T::AT_AlterColumnType => true,
            #[cfg(any(feature = "pg17", feature = "pg18"))]
            T::AT_SetExpression => true,
            _ => false,
        };
        // SAFETY: PostgreSQL names the column of such a command by a string that is part of the tree, or by nothing.
        let name = |command: &pg_sys::AlterTableCmd| unsafe {
            (!command.name.is_null()).then(|| std::ffi::CStr::from_ptr(command.name).to_string_lossy().into_owned())
        };
        self.alterations().into_iter().filter(|command| rewrites(command.subtype)).filter_map(name).collect()
    }

    fn renames_trigger(&self) -> bool {
        if self.tag() != pg_sys::NodeTag::T_RenameStmt {
            return false;
        }
        // SAFETY: the tag says what the node is.
        let rename = unsafe { &*(*self.0).parsetree.cast::<pg_sys::RenameStmt>() };
        rename.renameType == pg_sys::ObjectType::OBJECT_TRIGGER
    }

    /// Whether it is an ALTER TABLE that does one of these.
    fn alters(&self, what: &[pg_sys::AlterTableType::Type]) -> bool {
        self.alterations().iter().any(|command| what.contains(&command.subtype))
    }

    /// What an ALTER TABLE consists of; nothing of other commands.
    fn alterations(&self) -> Vec<&pg_sys::AlterTableCmd> {
        if self.tag() != pg_sys::NodeTag::T_AlterTableStmt {
            return Vec::new();
        }
        // SAFETY: the tag says what the node is; its list has the commands of the statement, which live as long as it.
        unsafe {
            let statement = &*(*self.0).parsetree.cast::<pg_sys::AlterTableStmt>();
            pgrx::PgList::<pg_sys::AlterTableCmd>::from_pg(statement.cmds).iter_ptr().map(|command| &*command).collect()
        }
    }

    fn tag(&self) -> pg_sys::NodeTag {
        // SAFETY: PostgreSQL keeps the command, with a copy of its parse tree, until the event trigger is done.
        unsafe {
            let tree = (*self.0).parsetree;
            if tree.is_null() { pg_sys::NodeTag::T_Invalid } else { (*tree).type_ }
        }
    }
}
