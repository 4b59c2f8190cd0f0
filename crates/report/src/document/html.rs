//! Parts of a page.

use maud::{Markup, PreEscaped, html};

use super::{Cell, Column, Table};

/// Content security policy: the page loads nothing and runs no script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Style sheet, for light and dark modes, paper and phones.
const STYLE: &str = include_str!("../html/page.css");

/// Formats a page as one self-contained file.
pub fn page(title: &str, head: Markup, main: Markup, footer: Markup) -> String {
    let title = text(title);
    let page = html! {
        (PreEscaped("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"))
        (PreEscaped(format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>")))
        (PreEscaped("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"))
        title { (title) } style { (PreEscaped(STYLE)) }
        (PreEscaped("</head>\n<body>"))
        header { h1 { (title) } (head) }
        main { (main) }
        footer { (footer) }
        (PreEscaped("</body></html>\n"))
    };
    page.into_string()
}

/// Escapes a text, and drops characters that XML forbids.
pub fn text(text: &str) -> PreEscaped<String> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    PreEscaped(out)
}

fn class(column: &Column) -> Option<&'static str> {
    column.is_text.then_some("text")
}

fn cell(cell: &Cell) -> Markup {
    html! {
        @if let Some(share) = cell.share {
            span style=(format!("width:{:.1}%", share.clamp(0.0, 1.0) * 100.0)) {}
        }
        @if let Some(color) = cell.swatch { span class={ "swatch c" (color) } {} }
        (text(&cell.text))
        @if !cell.below.is_empty() {
            (PreEscaped("<br/>"))
            small { @if cell.is_strong { b { (text(&cell.below)) } } @else { (text(&cell.below)) } }
        }
    }
}

impl Table {
    /// Formats the table as an element; the first cell of a row is its heading.
    pub fn to_html(&self) -> Markup {
        html! {
            table {
                thead { tr {
                    @for column in &self.columns { th scope="col" class=[class(column)] {
                        (cell(&column.head)) } }
                } }
                tbody { @for row in &self.rows { tr {
                    @for (i, (column, value)) in self.columns.iter().zip(row).enumerate() {
                        @if i == 0 {
                            th scope="row" class=[class(column)] { (cell(value)) }
                        } @else if value.share.is_some() {
                            td class="bar" { (cell(value)) }
                        } @else {
                            td class=[class(column)] { (cell(value)) }
                        }
                    }
                } } }
            }
        }
    }

    /// Formats the table as a card that scrolls.
    pub fn to_card(&self) -> Markup {
        html! { div class="card wide" { (self.to_html()) } }
    }

    /// Formats the table as collapsed content; `summary` is the line that opens it.
    pub fn to_fold(&self, summary: &str) -> Markup {
        html! { details { summary { (summary) } div class="wide" { (self.to_html()) } } }
    }
}
