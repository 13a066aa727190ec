//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`.

use crate::object::Header;
use crate::store::Label;

/// A term of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: Box<str>,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
    Greater(i64),
    Less(i64),
}

impl Requirement {
    pub(super) fn matches(&self, header: &Header) -> bool {
        let value = header.label(&self.key);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one.as_ref() == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one.as_ref() != value)),
            Test::Greater(bound) => number(value).is_some_and(|value| value > *bound),
            Test::Less(bound) => number(value).is_some_and(|value| value < *bound),
        }
    }
}

impl Requirement {
    /// The label with the value that it must have, if there is exactly one.
    pub(super) fn only(&self) -> Option<Label> {
        match &self.test {
            Test::In(values) => match values.as_slice() {
                [value] => Some(Label { key: self.key.clone(), value: value.clone() }),
                _ => None,
            },
            _ => None,
        }
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

/// Parses a label selector; errors have the words of Kubernetes' parser.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek(Context::Value) {
            Token::Word(_) | Token::Not => {
                let requirement =
                    parser.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
                requirements.push(requirement);
                match parser.next(Context::Value) {
                    Token::End => return Ok(requirements),
                    Token::Comma => match parser.peek(Context::Value) {
                        Token::Word(_) | Token::Not => {}
                        other => {
                            return Err(format!("found '{}', expected: identifier after ','", other.text()));
                        }
                    },
                    other => {
                        return Err(format!("found '{}', expected: ',' or 'end of string'", other.text()));
                    }
                }
            }
            Token::End => return Ok(requirements),
            other => {
                return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Not,
    Equal,
    DoubleEqual,
    NotEqual,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
    In,
    NotIn,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Not => "!",
            Self::Equal => "=",
            Self::DoubleEqual => "==",
            Self::NotEqual => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::End => "",
            Self::In => "in",
            Self::NotIn => "notin",
        }
    }
}

/// `in` and `notin` are operators after a key (`Key`) and plain words elsewhere (`Value`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Key,
    Value,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut followed_by_equal = || letters.next_if_eq(&'=').is_some();
        found.push(match letter {
            ' ' | '\t' | '\r' | '\n' => continue,
            '=' if followed_by_equal() => Token::DoubleEqual,
            '=' => Token::Equal,
            '!' if followed_by_equal() => Token::NotEqual,
            '!' => Token::Not,
            '>' => Token::Greater,
            '<' => Token::Less,
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            _ => {
                let mut word = String::from(letter);
                while let Some(next) = letters.next_if(|next| !" \t\r\n=!><(),".contains(*next)) {
                    word.push(next);
                }
                match word.as_str() {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    _ => Token::Word(word),
                }
            }
        });
    }
    found
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self, context: Context) -> Token {
        let token = self.tokens.get(self.at).cloned().unwrap_or(Token::End);
        match (context, token) {
            (Context::Value, Token::In) => Token::Word("in".into()),
            (Context::Value, Token::NotIn) => Token::Word("notin".into()),
            (_, token) => token,
        }
    }

    fn next(&mut self, context: Context) -> Token {
        let token = self.peek(context);
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek(Context::Value) == Token::Not;
        if absent {
            self.at += 1;
        }
        let key = match self.next(Context::Value) {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_key(&key)?;
        let test = if absent {
            Test::Absent
        } else if matches!(self.peek(Context::Value), Token::End | Token::Comma) {
            Test::Exists
        } else {
            self.test(&key)?
        };
        Ok(Requirement { key: key.into(), test })
    }

    fn test(&mut self, key: &str) -> Result<Test, String> {
        let operator = self.next(Context::Key);
        let values = match operator {
            Token::In | Token::NotIn => self.values()?,
            Token::Equal | Token::DoubleEqual | Token::NotEqual | Token::Greater | Token::Less => {
                vec![self.exact_value()?]
            }
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        for (at, value) in values.iter().enumerate() {
            check_value(key, at, value)?;
        }
        let bound = || {
            let value = values.first().map_or("", |value| value.as_ref());
            value.parse().map_err(|_| {
                format!(
                    "values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
            })
        };
        Ok(match operator {
            Token::NotIn | Token::NotEqual => Test::NotIn(values),
            Token::Greater => Test::Greater(bound()?),
            Token::Less => Test::Less(bound()?),
            _ => Test::In(values),
        })
    }

    /// Reads a single value; a missing one is the empty value.
    fn exact_value(&mut self) -> Result<Box<str>, String> {
        if matches!(self.peek(Context::Value), Token::End | Token::Comma) {
            return Ok("".into());
        }
        match self.next(Context::Value) {
            Token::Word(value) => Ok(value.into()),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<Box<str>>, String> {
        match self.next(Context::Value) {
            Token::Open => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values: Vec<Box<str>> = Vec::new();
        let mut wanted = true;
        loop {
            match self.next(Context::Value) {
                Token::Word(value) if wanted => {
                    values.push(value.into());
                    wanted = false;
                }
                Token::Comma => {
                    if wanted {
                        values.push("".into());
                    }
                    wanted = true;
                }
                Token::Close => {
                    if wanted {
                        values.push("".into());
                    }
                    values.sort();
                    values.dedup();
                    return Ok(values);
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
    }
}

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                         with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn check_key(key: &str) -> Result<(), String> {
    let name = key.rsplit('/').next().unwrap_or(key);
    let problem = if !is_label_text(name) || name.is_empty() {
        NAME_PART
    } else if name.len() > 63 {
        "name part must be no more than 63 bytes"
    } else {
        return Ok(());
    };
    Err(format!("<nil>: Invalid value: \"{key}\": {problem}"))
}

fn check_value(key: &str, at: usize, value: &str) -> Result<(), String> {
    let problem = if value.len() > 63 {
        "must be no more than 63 bytes"
    } else if !is_label_text(value) {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
         start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    } else {
        return Ok(());
    };
    Err(format!("values[{at}][{key}]: Invalid value: \"{value}\": {problem}"))
}

/// Letters, digits and `-_.`, with a letter or digit at both ends; also empty.
fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header(labels: &[(&str, &str)]) -> Header {
        let labels = labels.iter().copied().collect();
        Header { labels, ..Header::default() }
    }

    #[test]
    fn every_operator_selects_what_kubernetes_documents() {
        let object = header(&[("env", "prod"), ("replicas", "3")]);
        let cases = [
            ("env=prod", true),
            ("env==dev", false),
            ("env!=dev", true),
            ("missing!=dev", true),
            ("env in (dev, prod)", true),
            ("missing in (dev)", false),
            ("env notin (prod)", false),
            ("missing notin (prod)", true),
            ("env", true),
            ("!env", false),
            ("!missing", true),
            ("replicas>2", true),
            ("replicas<3", false),
            ("env>2", false),
            ("in=prod", false),
            ("env=prod,!missing,replicas in (3)", true),
            ("", true),
        ];
        for (selector, expected) in cases {
            let requirements = parse(selector).unwrap();
            let matches = requirements.iter().all(|requirement| requirement.matches(&object));
            assert_eq!(matches, expected, "{selector}");
        }
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for selector in ["a b", "a=b c", "a in b", "a in (b", ",a", "a=b,", "=b", "a>x", "-a", "a=-"] {
            assert!(parse(selector).is_err(), "{selector}");
        }
    }
}
