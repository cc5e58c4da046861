//! Keys and values, with or without a lease.

use crate::client::Client;
use crate::error::Error;
use crate::v1;
use crate::v1::delete_request::Which;

/// The keys of a server.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let keys = client.keys();
/// keys.put("config/limit", "20").await?;
/// let limit = keys.get("config/limit").await?.map(|item| item.value);
/// assert_eq!(limit.as_deref(), Some(&b"20"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Keys {
    client: Client,
}

impl Keys {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Writes a key that hangs on no lease, and tells how often it was written since it was created. It is never repeated:
    /// [`Error::Broken`] says that nobody knows whether it was done.
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<u64, Error> {
        self.put_on(0, key, value).await
    }

    /// Writes a key that ends with this lease.
    pub async fn put_on(&self, lease: u64, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<u64, Error> {
        let (key, value) = (key.into(), Some(value.into()));
        Ok(self.client.put(v1::PutRequest { key, value, lease, keep_lease: false }).await?.version)
    }

    /// One key, if there is one.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<v1::KeyValue>, Error> {
        Ok(self.client.get_key(v1::GetKeyRequest { key: key.into(), stale: false }).await?.item)
    }

    /// All keys that start so.
    pub async fn list(&self, prefix: impl Into<Vec<u8>>) -> Result<Vec<v1::KeyValue>, Error> {
        let mut request = v1::ListKeysRequest { prefix: prefix.into(), ..v1::ListKeysRequest::default() };
        let mut items = Vec::new();
        loop {
            let page = self.client.list_keys(request.clone()).await?;
            items.extend(page.items);
            if page.next.is_empty() {
                return Ok(items);
            }
            request.from = page.next;
        }
    }

    /// Removes a key, and tells whether there was one.
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<bool, Error> {
        let which = Some(Which::Key(key.into()));
        Ok(self.client.delete(v1::DeleteRequest { which }).await?.count > 0)
    }
}
