//! The codec of the treaty: protocol buffers, but a message that cannot be read is the sender's fault and says so.

use crate::code::Code;
use crate::failure::failure_status;
use crate::v1::Failure;
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Encodes as protocol buffers; answers unreadable input with the code `bad_message`.
#[derive(Clone, Debug)]
pub struct TreatyCodec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for TreatyCodec<T, U> {
    fn default() -> Self {
        Self { messages: PhantomData }
    }
}

impl<T, U> Codec for TreatyCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = TreatyDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        tonic_prost::ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        TreatyDecoder { message: PhantomData }
    }
}

/// The reading half of [`TreatyCodec`].
#[derive(Clone, Debug)]
pub struct TreatyDecoder<U> {
    message: PhantomData<U>,
}

impl<U: Message + Default> Decoder for TreatyDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(bytes).map(Some).map_err(|error| {
            let message = format!("the message cannot be read: {error}; nothing was changed");
            failure_status(&Failure { code: Code::BadMessage.text().into(), message, ..Failure::default() })
        })
    }
}
