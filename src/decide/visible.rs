//! Text from elsewhere made visible: what a terminal, a log or a chat would hide, reorder or obey is written out.
//!
//! Object contents, names and reasons come from whoever may write them, agents included. One function serves the plugin, events and
//! messages, so that the same text reads the same everywhere and two different texts never read alike.

use unicode_general_category::{GeneralCategory, get_general_category};

/// Marks on one base character before they are written out: the languages that stack marks need no more.
const MARKS: usize = 4;
/// Equal code points in a row that are written out one by one; a longer run is folded with its length.
const RUN: usize = 8;
/// Spaces in a row that stay spaces: more of them push text out of sight.
const SPACES: usize = 32;

/// The text with every control, format, private, unassigned or invisible code point as `<U+XXXX>` and a tab as `→`.
///
/// A run of more than eight equal ones is folded: `<U+200B x500>`. Runs of combining marks and of spaces are folded alike. Nothing is
/// lost: a literal `→` and the `<` of a literal `<U+` are written out themselves, so different texts never have the same output.
/// Line breaks are written out too; whoever shows several lines splits them first.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for token in tokens(text) {
        out.push_str(&token.shown);
    }
    out
}

/// The visible text in at most `max` characters: a longer one loses its middle, and says how many characters that were.
///
/// The mark `<U+... 12 characters cut>` cannot come from the text itself. A `max` too small for the mark yields the mark alone.
pub fn one_line(text: &str, max: usize) -> String {
    let tokens = tokens(text);
    let width: usize = tokens.iter().map(Token::width).sum();
    if width <= max {
        return tokens.iter().map(|token| token.shown.as_str()).collect();
    }
    let total: usize = tokens.iter().map(|token| token.characters).sum();
    let room = max.saturating_sub(cut_mark(total).chars().count());
    let (head, used) = fit(tokens.iter(), room.div_ceil(2));
    let (tail, _) = fit(tokens.iter().skip(head).rev(), room - used);
    let kept_to = tokens.len() - tail;
    let cut: usize = tokens
        .iter()
        .take(kept_to)
        .skip(head)
        .map(|token| token.characters)
        .sum();
    let mut out: String = tokens
        .iter()
        .take(head)
        .map(|token| token.shown.as_str())
        .collect();
    out.push_str(&cut_mark(cut));
    out.extend(
        tokens
            .iter()
            .skip(kept_to)
            .map(|token| token.shown.as_str()),
    );
    out
}

/// Some characters of the input and what stands for them.
struct Token {
    shown: String,
    characters: usize,
}

impl Token {
    fn width(&self) -> usize {
        self.shown.chars().count()
    }
}

fn cut_mark(characters: usize) -> String {
    format!("<U+... {characters} characters cut>")
}

/// How many tokens from the start of the iterator fit, and how wide they are.
fn fit<'t>(tokens: impl Iterator<Item = &'t Token>, room: usize) -> (usize, usize) {
    let mut count = 0;
    let mut used = 0;
    for token in tokens {
        if used + token.width() > room {
            break;
        }
        used += token.width();
        count += 1;
    }
    (count, used)
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut chars = text.chars().peekable();
    // Whether a mark that comes next has a character of this text to stand on.
    let mut has_base = false;
    while let Some(first) = chars.next() {
        if first == '<' && chars.peek() == Some(&'U') && {
            let mut ahead = chars.clone();
            ahead.next();
            ahead.peek() == Some(&'+')
        } {
            tokens.push(escaped(first, 1));
            has_base = false;
            continue;
        }
        if is_mark(first) {
            let mut marks = vec![first];
            while let Some(&next) = chars.peek().filter(|next| is_mark(**next)) {
                marks.push(next);
                chars.next();
            }
            if has_base && marks.len() <= MARKS {
                tokens.extend(marks.into_iter().map(literal));
            } else {
                for run in marks.chunk_by(|left, right| left == right) {
                    push_run(&mut tokens, run);
                }
                has_base = false;
            }
            continue;
        }
        if first == ' ' || is_hidden(first) {
            let mut run = vec![first];
            while chars.peek() == Some(&first) {
                run.push(first);
                chars.next();
            }
            has_base = false;
            if first != ' ' {
                push_run(&mut tokens, &run);
            } else if run.len() > SPACES {
                tokens.push(escaped(' ', run.len()));
            } else {
                tokens.extend(run.into_iter().map(literal));
            }
            continue;
        }
        has_base = first != '\t';
        tokens.push(match first {
            '\t' => Token {
                shown: "→".to_owned(),
                characters: 1,
            },
            _ => literal(first),
        });
    }
    tokens
}

fn push_run(tokens: &mut Vec<Token>, run: &[char]) {
    let Some(&first) = run.first() else { return };
    if run.len() > RUN {
        tokens.push(escaped(first, run.len()));
    } else {
        tokens.extend(run.iter().map(|character| escaped(*character, 1)));
    }
}

fn literal(character: char) -> Token {
    Token {
        shown: character.to_string(),
        characters: 1,
    }
}

fn escaped(character: char, times: usize) -> Token {
    let code = u32::from(character);
    let shown = if times == 1 {
        format!("<U+{code:04X}>")
    } else {
        format!("<U+{code:04X} x{times}>")
    };
    Token {
        shown,
        characters: times,
    }
}

fn is_mark(character: char) -> bool {
    !is_hidden(character)
        && matches!(
            get_general_category(character),
            GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark
        )
}

/// Whether a reader would not see the code point, or the terminal would obey it. For formats with an escape of their own, as JSON.
pub fn is_hidden(character: char) -> bool {
    match character {
        '\t' | ' ' => false,
        // Stands for the tab, so a literal one is written out.
        '→' => true,
        _ => {
            matches!(
                get_general_category(character),
                GeneralCategory::Control
                    | GeneralCategory::Format
                    | GeneralCategory::LineSeparator
                    | GeneralCategory::ParagraphSeparator
                    | GeneralCategory::SpaceSeparator
                    | GeneralCategory::PrivateUse
                    | GeneralCategory::Surrogate
                    | GeneralCategory::Unassigned
            ) || is_blank(character)
        }
    }
}

/// Letters, marks and symbols that are drawn as nothing (Unicode's Default_Ignorable_Code_Point, and the empty braille cell).
fn is_blank(character: char) -> bool {
    matches!(
        character,
        '\u{034F}'
            | '\u{115F}'
            | '\u{1160}'
            | '\u{17B4}'
            | '\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FFA0}'
            | '\u{E0100}'..='\u{E01EF}'
    )
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use proptest::prelude::*;

    use super::*;

    /// Reads the output back. Only an injective function can be read back.
    fn read_back(shown: &str) -> String {
        let mut out = String::new();
        let mut rest = shown;
        while let Some(character) = rest.chars().next() {
            if let Some(inner) = rest.strip_prefix("<U+") {
                let (code, after) = inner.split_once('>').unwrap();
                let (hex, times) = code.split_once(" x").unwrap_or((code, "1"));
                let character = char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap();
                out.extend(std::iter::repeat_n(character, times.parse().unwrap()));
                rest = after;
            } else {
                out.push(if character == '→' { '\t' } else { character });
                rest = rest.strip_prefix(character).unwrap();
            }
        }
        out
    }

    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            any::<char>().prop_map(String::from),
            proptest::sample::select(vec![
                "<",
                "U",
                "+",
                "<U+",
                "<U+200B>",
                "<U+200B x9>",
                "→",
                "\t",
                "\n",
                "\r",
                "\u{1b}[2J",
                "\u{7}",
                "\u{9b}",
                "\u{202e}",
                "\u{200b}",
                "\u{2028}",
                "\u{e0041}",
                "\u{301}",
                "\u{20dd}",
                "\u{fe0f}",
                "\u{2800}",
                "\u{a0}",
                "a",
                " ",
                "x9>",
            ])
            .prop_map(String::from),
            (
                proptest::sample::select(vec![
                    '\u{301}', '\u{302}', '\u{200b}', ' ', '\u{1b}', '\t', 'a'
                ]),
                1usize..80
            )
                .prop_map(|(character, times)| std::iter::repeat_n(character, times).collect()),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn output_holds_nothing_that_hides_or_commands(text in hostile()) {
            for character in visible(&text).chars() {
                prop_assert!(!is_hidden(character) || character == '→', "{:04X}", u32::from(character));
                prop_assert!(!character.is_control());
            }
        }

        #[test]
        fn different_texts_never_look_alike(text in hostile()) {
            prop_assert_eq!(read_back(&visible(&text)), text);
        }

        #[test]
        fn no_more_than_four_marks_stand_on_one_another(text in hostile()) {
            let shown: Vec<char> = visible(&text).chars().collect();
            prop_assert!(!shown.windows(MARKS + 1).any(|window| window.iter().all(|character| is_mark(*character))));
            prop_assert!(!shown.first().is_some_and(|character| is_mark(*character)));
        }

        #[test]
        fn one_line_keeps_its_length_and_hides_nothing(text in hostile(), max in 40usize..120) {
            let line = one_line(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert!(!line.chars().any(|character| character.is_control()));
            prop_assert_eq!(line.contains("characters cut>") , visible(&text).chars().count() > max);
        }
    }

    #[test]
    fn the_classes_are_written_out() {
        let shown = visible(
            "a\u{1b}[31m\u{9b}\u{7f}\u{202e}\u{200b}\u{2028}\u{2029}\u{e000}\u{378}\u{feff}b\tc\r\n",
        );
        assert_eq!(
            shown,
            "a<U+001B>[31m<U+009B><U+007F><U+202E><U+200B><U+2028><U+2029><U+E000><U+0378><U+FEFF>b→c<U+000D><U+000A>"
        );
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in [
            "deployments/scale web/api",
            "Grüße, 東京, नमस्ते, e\u{301}",
            "a < b, a <b> U+202E",
        ] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn what_looks_like_our_own_output_is_written_out() {
        assert_eq!(visible("<U+202E>"), "<U+003C>U+202E>");
        assert_eq!(visible("a → b"), "a <U+2192> b");
    }

    #[test]
    fn long_runs_are_folded_with_a_count() {
        assert_eq!(
            visible(&format!("a{}", "\u{301}".repeat(50))),
            "a<U+0301 x50>"
        );
        assert_eq!(
            visible(&format!("a{}b", " ".repeat(500))),
            "a<U+0020 x500>b"
        );
        assert_eq!(visible(&"\u{200b}".repeat(9)), "<U+200B x9>");
    }

    #[test]
    fn a_mark_without_a_character_of_its_own_is_written_out() {
        assert_eq!(visible("\u{20dd}a"), "<U+20DD>a");
        assert_eq!(visible("\u{200b}\u{301}"), "<U+200B><U+0301>");
    }

    #[test]
    fn a_long_line_loses_its_middle_and_says_so() {
        let line = one_line(&format!("{}{}", "a".repeat(100), "b".repeat(100)), 60);
        assert_eq!(
            line,
            format!(
                "{}<U+... 166 characters cut>{}",
                "a".repeat(17),
                "b".repeat(17)
            )
        );
        assert_eq!(one_line("short", 60), "short");
    }
}
