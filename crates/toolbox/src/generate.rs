//! Manual pages and shell completions of `fastpath`, generated from the command line's definition.

use crate::examples;
use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::path::Path;

/// Shells with their completion files: folder and name below `share`.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "fastpath"),
    (Shell::Zsh, "zsh/site-functions", "_fastpath"),
    (Shell::Fish, "fish/vendor_completions.d", "fastpath.fish"),
];

/// Writes the manual pages and the completions of `cli` into the folders that they have under `share`.
///
/// # Errors
/// A file cannot be written.
pub fn write_files(cli: Command, share: &Path) -> Result<()> {
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages).with_context(|| pages.display().to_string())?;
    let shown = copy_visible(&cli);
    let mut command = cli.disable_help_subcommand(true);
    command.build();
    write_pages(&command, &pages)?;
    for (shell, folder, name) in COMPLETIONS {
        let folder = share.join(folder);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut shown.clone(), "fastpath", &mut text);
        write(&folder.join(name), &text)?;
    }
    Ok(())
}

/// Copies a command without its hidden options and subcommands, which completions would propose.
fn copy_visible(command: &Command) -> Command {
    let name: &'static str = Box::leak(command.get_name().to_owned().into_boxed_str());
    let about = command.get_about().cloned().unwrap_or_default();
    let options = command.get_arguments().filter(|option| !option.is_hide_set());
    let mut copy = Command::new(name).about(about).args(options);
    if command.get_version().is_some() {
        copy = copy.version("");
    }
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    copy.subcommands(inner.map(copy_visible))
}

/// Writes the pages of a command and its subcommands.
fn write_pages(command: &Command, folder: &Path) -> Result<()> {
    let source = concat!("Fastpath ", env!("BUILD_VERSION"));
    // Pass a blank date: without a date, the source would stand in the date's place.
    let page = Man::new(command.clone()).date(" ").source(source);
    let mut text = Vec::new();
    page.render(&mut text)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    if let Some(examples) = examples::find(name) {
        let escaped = examples.replace('\\', "\\e").replace('-', "\\-");
        text.extend_from_slice(format!(".SH EXAMPLES\n.nf\n{escaped}.fi\n").as_bytes());
    }
    write(&folder.join(page.get_filename()), &text)?;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, folder)?;
    }
    Ok(())
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}
