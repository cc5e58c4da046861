//! What is asked of keys.

use super::value::{read_key, read_lease};
use crate::bad::BadRequest;
use crate::v1;
use crate::v1::delete_request::Which;
use tenure_core::limits::KEY_VALUE_BYTES_MAX;
use tenure_core::{BadText, Delete, Hang, Keys, Put};

pub(super) fn put(put: &v1::PutRequest) -> Result<Put, BadRequest> {
    Ok(Put {
        key: read_key(&put.key)?,
        value: put.value.as_deref().map(Into::into),
        lease: match (put.lease, put.keep_lease) {
            (0, true) => Hang::Keep,
            (0, false) => Hang::Free,
            (_, true) => return Err(BadRequest::Both("`lease` and `keep_lease`")),
            (lease, false) => Hang::On(read_lease(lease)?),
        },
    })
}

pub(super) fn delete(delete: &v1::DeleteRequest) -> Result<Delete, BadRequest> {
    let keys = match delete.which.as_ref().ok_or(BadRequest::Missing("which keys"))? {
        Which::Key(key) => Keys::One(read_key(key)?),
        Which::Prefix(prefix) if prefix.len() > KEY_VALUE_BYTES_MAX => {
            return Err(BadRequest::Key(BadText::TooLong { bytes: prefix.len(), max: KEY_VALUE_BYTES_MAX }));
        }
        Which::Prefix(prefix) => Keys::Prefix(prefix.as_slice().into()),
    };
    Ok(Delete { keys })
}
