//! `dhow completions SHELL`: the script that lets a shell complete this command line.

use clap_complete::Shell;

use super::complete;
use crate::cli::Cli;
use crate::exit::Exit;
use crate::output;

/// Print a completion script for a shell
///
/// For bash: `dhow completions bash > /etc/bash_completion.d/dhow`. In bash, zsh and fish the names of deployments,
/// services, replicas, nodes and images are completed too, where a daemon answers.
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::offered(), "dhow", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = with_names(args.shell, &script).replace("@WORD@", complete::WORD);
    output::raw_stdout(script.as_bytes())?;
    Ok(Exit::Done)
}

/// The script that also asks for names. It offers what it did before where none are found.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH}"),
        // The script calls itself where it was loaded by its file's name.
        Shell::Zsh => match script.rfind(ZSH_END) {
            Some(at) => format!("{}{ZSH}", script.get(..at).unwrap_or(script)),
            None => format!("{script}{ZSH}"),
        },
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.to_owned(),
    }
}

const BASH: &str = r#"
_dhow_with_names() {
    local line=${COMP_LINE:0:COMP_POINT} found cur
    # The line's own words: bash would divide them at `:` and `=`.
    local -a words
    IFS=$' \t' read -r -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[-1]}
    found=$("${words[0]}" @WORD@ "${words[@]:1}" 2>/dev/null)
    if [[ -n $found ]]; then
        local IFS=$'\n'
        COMPREPLY=($found)
        # What stands before the last `:` or `=` is not written again.
        local kept=${cur%"${cur##*[:=]}"}
        [[ -n $kept ]] && COMPREPLY=("${COMPREPLY[@]#"$kept"}")
        return 0
    fi
    # Behind a `:` or `=` stands no option.
    [[ $cur == -* || $cur != *[:=]* ]] && _dhow "$@"
}
complete -F _dhow_with_names -o bashdefault -o default dhow
"#;

const ZSH_END: &str = r#"if [ "$funcstack[1]" = "_dhow" ]"#;

const ZSH: &str = r#"_dhow_with_names() {
    local -a found
    found=("${(@f)$("$words[1]" @WORD@ "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found[1]" ]]; then
        compadd -- $found
    else
        _dhow "$@"
    fi
}

compdef _dhow_with_names dhow
if [ "$funcstack[1]" = "_dhow" ]; then
    _dhow_with_names "$@"
fi
"#;

const FISH: &str = r#"
complete -c dhow -a '(dhow @WORD@ (commandline -opc)[2..-1] "$(commandline -ct)" 2>/dev/null)'
"#;
