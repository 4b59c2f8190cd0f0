//! Checks of HTML pages: well formed, self-contained, with readable labels.

/// Checks that labels lie inside a drawing and do not overlap; returns their number.
pub fn check_labels(svg: roxmltree::Node, wide: f64) -> usize {
    let boxes = text_boxes(svg);
    for (i, a) in boxes.iter().enumerate() {
        assert!(a.0 >= 0.0 && a.2 <= wide, "{a:?} is cut off");
        for b in &boxes[i + 1..] {
            let apart = a.2 <= b.0 || b.2 <= a.0 || a.3 <= b.1 || b.3 <= a.1;
            assert!(apart, "{a:?} over {b:?}");
        }
    }
    boxes.len()
}

/// Parses a page, which must be well formed.
pub fn parse(page: &str) -> roxmltree::Document<'_> {
    let body = page.trim_start_matches("<!DOCTYPE html>\n");
    roxmltree::Document::parse(body).expect("well formed")
}

/// Checks that ids are unique.
pub fn check_ids(document: &roxmltree::Document) {
    let mut ids: Vec<&str> = document.descendants().filter_map(|n| n.attribute("id")).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is there twice");
}

/// Checks that the page is self-contained.
pub fn check_loads_nothing(page: &str) {
    for word in ["http://", "https://", "url(", "@import", "src=", "href="] {
        assert!(!page.contains(word), "{word}");
    }
}

/// Approximate boxes of the texts in a drawing.
fn text_boxes(svg: roxmltree::Node) -> Vec<(f64, f64, f64, f64, String)> {
    let upright =
        svg.descendants().filter(|n| n.has_tag_name("text") && n.attribute("transform").is_none());
    let place = |node: roxmltree::Node| {
        let number = |name| node.attribute(name).and_then(|v| v.parse::<f64>().ok());
        let text = node.text().unwrap_or_default().to_owned();
        let (x, y, size) = (number("x")?, number("y")?, number("font-size").unwrap_or(11.5));
        let bold = node.attribute("class").is_some_and(|c| c.starts_with("label"));
        let wide = if bold { 0.66 } else { 0.58 } * size * text.chars().count() as f64;
        let left = match node.attribute("text-anchor") {
            Some("end") => x - wide,
            Some("middle") => x - wide / 2.0,
            _ => x,
        };
        Some((left, y - 0.75 * size, left + wide, y + 0.1 * size, text))
    };
    upright.filter_map(place).collect()
}
