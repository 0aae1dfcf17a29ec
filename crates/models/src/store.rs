//! The folder with one folder for each model.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::source::check_name;

/// What a folder's name begins with while a model in it is being added or removed: no model's name does.
const ADDING: &str = ".adding-";
const REMOVING: &str = ".removing-";
const LOCK: &str = ".ragent-model.lock";

/// The folder of models.
pub struct Store {
    dir: PathBuf,
}

impl Store {
    pub fn new(dir: PathBuf) -> Store {
        Store { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of a model.
    pub fn model(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The models' names, in order.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let failed = |error| Failure::of_file("read folder", &self.dir, &error);
        let mut names = Vec::new();
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            names.extend(name.filter(|name| check_name(name).is_ok() && path.is_dir()).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Keeps other runs of this program from changing the folder, and clears away what a killed one has left. Makes the folder
    /// if there is none.
    ///
    /// # Errors
    ///
    /// Another run is at it; the folder cannot be written to.
    pub fn lock(&self) -> Result<Locked<'_>, Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.dir);
        made.map_err(|error| Failure::of_file("make folder", &self.dir, &error))?;
        let path = self.dir.join(LOCK);
        let file = File::create(&path).map_err(|error| Failure::of_file("write", &path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    format!("another ragent-model is at work in {}", self.dir.display()),
                    "Wait until it is done.",
                ));
            }
            Err(fs::TryLockError::Error(error)) => return Err(Failure::of_file("lock", &path, &error)),
        }
        let failed = |error| Failure::of_file("read folder", &self.dir, &error);
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(ADDING) || name.starts_with(REMOVING) {
                remove_all(&entry.path())?;
            }
        }
        Ok(Locked { store: self, _file: file })
    }
}

/// The folder of models, ours alone to change.
pub struct Locked<'s> {
    store: &'s Store,
    _file: File,
}

impl Locked<'_> {
    /// A folder for a model that is being added. It goes away with the value unless it is put into its place.
    ///
    /// # Errors
    ///
    /// There is a model of that name and it is not to be replaced.
    pub fn begin(&self, name: &str, replace: bool) -> Result<Adding<'_>, Failure> {
        check_name(name)?;
        if !replace && self.store.model(name).symlink_metadata().is_ok() {
            return Err(Failure::new(
                format!("there is a model \"{name}\" in {} already", self.store.dir.display()),
                "Give the new one another name with --as, or put it in the place of the old one with --replace.",
            ));
        }
        let path = self.store.dir.join(format!("{ADDING}{name}"));
        let adding = Adding { locked: self, name: name.to_owned(), path };
        adding.make_folder(&adding.path)?;
        Ok(adding)
    }

    /// Removes a model. Processes that use it keep what they have of it until they end.
    ///
    /// # Errors
    ///
    /// There is no such model; it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        check_name(name)?;
        let path = self.store.model(name);
        let Ok(metadata) = path.symlink_metadata() else {
            return Err(Failure::new(
                format!("there is no model \"{name}\" in {}", self.store.dir.display()),
                format!("There are: {}.", self.store.names()?.join(", ")),
            ));
        };
        if metadata.is_symlink() {
            return fs::remove_file(&path).map_err(|error| Failure::of_file("remove", &path, &error));
        }
        let is_model = ["config.json", "model.safetensors", "model.ragent"].iter().any(|file| path.join(file).exists());
        if !is_model {
            return Err(Failure::new(
                format!("{} is no model's folder", path.display()),
                "Nothing in it is a model's; remove it by other means if it is not needed.",
            ));
        }
        // Out of sight first: half a model is never seen.
        let doomed = self.store.dir.join(format!("{REMOVING}{name}"));
        fs::rename(&path, &doomed).map_err(|error| Failure::of_file("remove", &path, &error))?;
        remove_all(&doomed)
    }
}

/// A model that is being added.
pub struct Adding<'l> {
    locked: &'l Locked<'l>,
    name: String,
    path: PathBuf,
}

impl Adding<'_> {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file of the model goes; makes the folder it is in.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub fn place(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        match path.parent() {
            Some(parent) if !parent.exists() => self.make_folder(parent)?,
            _ => {}
        }
        Ok(path)
    }

    fn make_folder(&self, path: &Path) -> Result<(), Failure> {
        fs::create_dir(path).map_err(|error| Failure::of_file("make folder", path, &error))
    }

    /// Puts the model into its place, all at once and readable for everybody.
    ///
    /// # Errors
    ///
    /// It cannot be put there; then what was there is there still.
    pub fn finish(self) -> Result<(), Failure> {
        open_to_all(&self.path)?;
        let store = self.locked.store;
        let place = store.model(&self.name);
        let old = store.dir.join(format!("{REMOVING}{}", self.name));
        let failed = |error| Failure::of_file("put the model into", &place, &error);
        let had_one = match fs::rename(&place, &old) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        if let Err(error) = fs::rename(&self.path, &place) {
            if had_one {
                // The error that is told is the first one.
                let _ = fs::rename(&old, &place);
            }
            return Err(failed(error));
        }
        // So that a power cut does not take it back.
        File::open(&store.dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        if had_one { remove_all(&old) } else { Ok(()) }
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        // After `finish` there is none; what cannot be removed is cleared away by the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The server runs as another user than whoever adds a model, and the latter's umask may be strict.
fn open_to_all(dir: &Path) -> Result<(), Failure> {
    let set = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|error| Failure::of_file("set the permissions of", path, &error))
    };
    set(dir, 0o755)?;
    for entry in fs::read_dir(dir).map_err(|error| Failure::of_file("read folder", dir, &error))? {
        let path = entry.map_err(|error| Failure::of_file("read folder", dir, &error))?.path();
        if path.is_dir() { open_to_all(&path)? } else { set(&path, 0o644)? }
    }
    Ok(())
}

fn remove_all(path: &Path) -> Result<(), Failure> {
    let removed = if path.is_symlink() { fs::remove_file(path) } else { fs::remove_dir_all(path) };
    removed.map_err(|error| Failure::of_file("remove", path, &error))
}
