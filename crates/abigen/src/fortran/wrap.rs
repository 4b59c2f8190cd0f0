//! Free-form lines of limited length.

/// Longest line of a module source, in columns. Fortran allows 132.
pub(super) const WIDTH: usize = 100;

/// Appends `text` as one statement, indented by `indent` blanks. A long statement is continued after a comma or before
/// an equals sign.
pub(super) fn push_statement(out: &mut String, indent: usize, text: &str) {
    let mut margin = indent;
    let mut rest = text;
    while margin + rest.len() > WIDTH {
        // Two columns are for the continuation mark.
        let limit = WIDTH - margin - 2;
        let end =
            rest[..limit].rfind(", ").map_or_else(|| rest[..limit].rfind(" "), |at| Some(at + 1));
        let Some(end) = end else { break };
        push_line(out, margin, &format!("{} &", &rest[..end]));
        rest = rest[end..].trim_start();
        margin = indent + 4;
    }
    push_line(out, margin, rest);
}

fn push_line(out: &mut String, margin: usize, text: &str) {
    out.extend(std::iter::repeat_n(' ', margin));
    out.push_str(text);
    out.push('\n');
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn long_statement__is_continued_after_a_comma() {
        let names: Vec<String> = (0..40).map(|n| format!("name{n}")).collect();
        let mut out = String::new();
        push_statement(&mut out, 4, &names.join(", "));
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines.len() > 2 && lines.iter().all(|l| l.len() <= WIDTH));
        assert!(lines[..lines.len() - 1].iter().all(|l| l.ends_with(", &")));
        assert_eq!(out.replace(" &\n        ", " ").trim(), names.join(", "));
    }
}
