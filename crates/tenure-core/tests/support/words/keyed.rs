//! The words of transactions and of looks at keys.

use super::Words;
use tenure_core::{Compare, Op, Part, Range, Relation, Sort, SortBy, Subject, Txn, Way};

impl Words<'_> {
    /// `[if CONDITION [and CONDITION]…] then OP[, OP]… [else OP[, OP]…]`
    pub(super) fn txn(&mut self) -> Result<Txn, String> {
        let mut txn = Txn::default();
        if self.skip("if") {
            txn.compares.push(self.compare()?);
            while self.skip("and") {
                txn.compares.push(self.compare()?);
            }
        }
        self.expect("then")?;
        txn.then = self.ops()?;
        if self.skip("else") {
            txn.otherwise = self.ops()?;
        }
        Ok(txn)
    }

    /// `nothing`, or `OP[, OP]…`
    fn ops(&mut self) -> Result<Vec<Op>, String> {
        if self.skip("nothing") {
            return Ok(Vec::new());
        }
        let mut ops = vec![self.op()?];
        while self.skip(",") {
            ops.push(self.op()?);
        }
        Ok(ops)
    }

    /// `put …`, `delete …`, `get RANGE`, or `[ TXN ]`
    fn op(&mut self) -> Result<Op, String> {
        match self.word()? {
            "put" => Ok(Op::Put { put: self.put()?, prev: false }),
            "delete" => Ok(Op::Delete { keys: self.keys()?, prev: false }),
            "get" => self.range().map(Op::Range),
            "[" => {
                let txn = self.txn()?;
                self.expect("]")?;
                Ok(Op::Txn(txn))
            }
            other => Err(format!("`{other}` is nothing that a txn does")),
        }
    }

    /// `KEYS [at kv N] [limit N] [by TARGET [up|down]] [keys only|count only]`
    pub(super) fn range(&mut self) -> Result<Range, String> {
        let mut range = Range::of(self.keys()?);
        if self.skip("at kv") {
            range.revision = Some(self.number()?);
        }
        if self.skip("limit") {
            range.limit = Some(self.number()?);
        }
        if self.skip("by") {
            let by = match self.word()? {
                "key" => SortBy::Key,
                "version" => SortBy::Version,
                "created" => SortBy::Created,
                "modified" => SortBy::Modified,
                "value" => SortBy::Value,
                other => return Err(format!("nothing is sorted by `{other}`")),
            };
            let way = if self.skip("up") { Some(Way::Up) } else { None };
            range.sort = Some(Sort { by, way: if self.skip("down") { Some(Way::Down) } else { way } });
        }
        if self.skip("keys only") {
            range.part = Part::KeysOnly;
        } else if self.skip("count only") {
            range.part = Part::CountOnly;
        }
        Ok(range)
    }

    /// `WHAT of KEYS =|!=|>|< GIVEN`
    fn compare(&mut self) -> Result<Compare, String> {
        let what = self.word()?;
        self.expect("of")?;
        let keys = self.keys()?;
        let relation = match self.word()? {
            "=" => Relation::Equal,
            "!=" => Relation::NotEqual,
            ">" => Relation::Greater,
            "<" => Relation::Less,
            other => return Err(format!("`{other}` compares nothing: =, !=, > or <")),
        };
        let subject = match what {
            "version" => Subject::Version(self.number()?),
            "created" => Subject::Created(self.number()?),
            "modified" => Subject::Modified(self.number()?),
            "value" => Subject::Value(self.text()?.as_bytes().into()),
            "lease" if self.skip("none") => Subject::Lease(0),
            "lease" => Subject::Lease(i64::try_from(self.lease()?.number()).expect("a lease has 63 bits")),
            other => return Err(format!("keys have no `{other}`")),
        };
        Ok(Compare { keys, subject, relation })
    }
}

/// A look at keys, as `get` has it.
pub(crate) fn range(cast: &mut super::Cast, text: &str) -> Result<Range, String> {
    let mut words = Words { cast, words: super::split(text)?, next: 0, reason: None };
    let range = words.range()?;
    match words.peek() {
        Some(left) => Err(format!("`{left}` is not understood")),
        None => Ok(range),
    }
}
