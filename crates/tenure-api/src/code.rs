//! One table of every refusal: its stable text code, its gRPC code, its HTTP status.

use tonic::Code as Grpc;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $grpc:ident, $http:literal;)*) => {
        /// What went wrong, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable text.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The gRPC code that goes with it.
            pub const fn grpc(self) -> Grpc {
                match self { $(Self::$name => Grpc::$grpc,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn http(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }
        }
    };
}

codes! {
    /// The bytes are not a message of the treaty.
    BadMessage = "bad_message", InvalidArgument, 400;
    /// The request lacks something, or says two things at once.
    BadRequest = "bad_request", InvalidArgument, 400;
    /// A resource name that cannot be one.
    BadName = "bad_name", InvalidArgument, 400;
    /// The start of names that cannot be one.
    BadPrefix = "bad_prefix", InvalidArgument, 400;
    /// A holder's name that cannot be one.
    BadHolder = "bad_holder", InvalidArgument, 400;
    /// A reason that cannot be one.
    BadReason = "bad_reason", InvalidArgument, 400;
    /// A class that cannot be one.
    BadClass = "bad_class", InvalidArgument, 400;
    /// A label that cannot be one, or too many of them.
    BadLabel = "bad_label", InvalidArgument, 400;
    /// A key that cannot be one.
    BadKey = "bad_key", InvalidArgument, 400;
    /// A TTL out of range.
    BadTtl = "bad_ttl", InvalidArgument, 400;
    /// Another length of time out of range.
    BadSpan = "bad_span", InvalidArgument, 400;
    /// A lease id out of range.
    BadLease = "bad_lease", InvalidArgument, 400;
    /// A handle that cannot be one.
    BadHandle = "bad_handle", InvalidArgument, 400;
    /// A mode that there is not.
    BadMode = "bad_mode", InvalidArgument, 400;
    /// A number of units out of range.
    BadUnits = "bad_units", InvalidArgument, 400;
    /// A capacity out of range.
    BadCapacity = "bad_capacity", InvalidArgument, 400;
    /// A priority out of range.
    BadPriority = "bad_priority", InvalidArgument, 400;
    /// An epoch out of range.
    BadEpoch = "bad_epoch", InvalidArgument, 400;
    /// A kind of renewal that there is not.
    BadKind = "bad_kind", InvalidArgument, 400;
    /// Too many resources, or one of them twice.
    BadWants = "bad_wants", InvalidArgument, 400;
    /// A word, such as an id, a capability or a zone, that cannot be one.
    BadWord = "bad_word", InvalidArgument, 400;
    /// An endpoint that cannot be one.
    BadEndpoint = "bad_endpoint", InvalidArgument, 400;
    /// A check that cannot be one.
    BadCheck = "bad_check", InvalidArgument, 400;
    /// An instance that cannot be so.
    BadInstance = "bad_instance", InvalidArgument, 400;
    /// A health that there is not.
    BadHealth = "bad_health", InvalidArgument, 400;
    /// An expression over capabilities that cannot be read.
    BadExpression = "bad_expression", InvalidArgument, 400;
    /// More than one request may carry.
    TooMany = "too_many", InvalidArgument, 400;
    /// The body is not the JSON that was expected.
    BadJson = "bad_json", InvalidArgument, 400;
    /// The part of the address after `?` is not what was expected.
    BadQuery = "bad_query", InvalidArgument, 400;
    /// The body does not say that it is JSON.
    BadContentType = "bad_content_type", InvalidArgument, 415;
    /// The body is too large.
    TooLarge = "too_large", ResourceExhausted, 413;
    /// The body did not come in time.
    TooSlow = "too_slow", DeadlineExceeded, 408;
    /// The request was meant for another host.
    BadHost = "bad_host", PermissionDenied, 421;
    /// The request was made by a page of another host.
    BadOrigin = "bad_origin", PermissionDenied, 403;
    /// An API key is needed, and none that is known was shown.
    Unauthenticated = "unauthenticated", Unauthenticated, 401;
    /// The API key may not do this.
    Denied = "denied", PermissionDenied, 403;
    /// There is nothing at this address.
    NoSuchPath = "no_such_path", Unimplemented, 404;
    /// What is at this address does not answer to this method.
    NoSuchMethod = "no_such_method", Unimplemented, 405;
    /// Another lease has this id.
    Exists = "exists", AlreadyExists, 409;
    /// There is no such lease.
    NoLease = "no_lease", NotFound, 404;
    /// The lease has ended.
    Lapsed = "lapsed", NotFound, 410;
    /// A lease cannot hang on itself.
    OwnParent = "own_parent", InvalidArgument, 400;
    /// There is no such class.
    NoClass = "no_class", NotFound, 404;
    /// The TTL is outside what the class allows.
    TtlOfClass = "ttl_of_class", InvalidArgument, 400;
    /// The class of the lease does not allow this kind of renewal.
    NotRenewable = "not_renewable", FailedPrecondition, 409;
    /// Somebody else is in the way.
    Taken = "taken", FailedPrecondition, 409;
    /// The handle's claim does not hold its resource.
    Stale = "stale", FailedPrecondition, 412;
    /// The lease has no such claim.
    NoClaim = "no_claim", NotFound, 404;
    /// A request with this number was answered before.
    Answered = "answered", Aborted, 409;
    /// The lease has a claim on this resource in another mode.
    OtherMode = "other_mode", FailedPrecondition, 409;
    /// The lease has a claim on this resource already.
    Claimed = "claimed", AlreadyExists, 409;
    /// The resource has another capacity than was expected.
    OtherCapacity = "other_capacity", FailedPrecondition, 409;
    /// More units are asked for than the resource has.
    TooBig = "too_big", FailedPrecondition, 409;
    /// To wait would close a circle of leases that wait for each other.
    WouldDeadlock = "would_deadlock", Aborted, 409;
    /// Several resources cannot be waited for so long.
    WaitTooLong = "wait_too_long", InvalidArgument, 400;
    /// It was claimed or registered in a higher epoch.
    OlderEpoch = "older_epoch", FailedPrecondition, 409;
    /// Nobody holds the resource.
    NotHeld = "not_held", NotFound, 404;
    /// There is no such key.
    NoKey = "no_key", NotFound, 404;
    /// There is no such instance.
    NoInstance = "no_instance", NotFound, 404;
    /// Another lease has an instance of this id.
    InstanceExists = "instance_exists", AlreadyExists, 409;
    /// The instance does not hang on this lease.
    OtherLease = "other_lease", FailedPrecondition, 409;
    /// The instance has no such check.
    NoCheck = "no_check", NotFound, 404;
    /// A limit of the ledger is reached.
    Full = "full", ResourceExhausted, 507;
    /// The watch cannot resume so far back.
    Compacted = "compacted", OutOfRange, 410;
    /// The watch asks to resume after something that has not happened here.
    Ahead = "ahead", OutOfRange, 409;
    /// The server belongs to another cluster than the one that the client has been using; nothing was changed.
    OtherCluster = "other_cluster", FailedPrecondition, 421;
    /// This node does not lead; the answer says who does, if that is known.
    NotLeader = "not_leader", Unavailable, 503;
    /// The members of the cluster cannot be changed like that; nothing was changed.
    NotChanged = "not_changed", FailedPrecondition, 409;
    /// The queue is full; ask again later.
    Overloaded = "overloaded", ResourceExhausted, 429;
    /// The node is stopping, and nothing was changed.
    Stopping = "stopping", Unavailable, 503;
    /// A member of the cluster runs an older build that does not know what the request asks for.
    OldMember = "old_member", Unimplemented, 501;
    /// Whether it was done is not known.
    Unknown = "unknown", DeadlineExceeded, 504;
}
