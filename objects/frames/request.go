package frames

// RequestVerb is the number, in a header, of a request.
type RequestVerb uint8

// The requests. Their bodies, and those of their answers, are JSON, of types in package adminapi.
const (
	// RequestRegister is a Register, answered with a Registered.
	RequestRegister RequestVerb = iota + 1
	// RequestBind is a BindRequest, answered with a BindAnswer.
	RequestBind
	// RequestExport is an ExportRequest, answered with a share.Memory, or an EndAnswer.
	RequestExport
	// RequestCollect is a CollectRequest, answered with a CollectAnswer.
	RequestCollect
	// RequestVerify is a VerifyRequest, answered with a VerifyAnswer.
	RequestVerify
	// RequestKeys is a KeysRequest, answered with a KeysAnswer.
	RequestKeys
	// RequestWatch has an empty object, and is answered with one EventsAnswer after the other.
	RequestWatch
)

// MaxRequest bounds the body of a request, in bytes.
const MaxRequest = 1 << 20

// BeginRequest appends the header of a request whose body is appended next; see Begin. descriptors is the number of those that
// have been sent for it, on the Channel.
func BeginRequest(b []byte, verb RequestVerb, descriptors int, id uint64) []byte {
	return Header{Kind: KindRequest, Verb: uint8(verb), Descriptors: uint8(descriptors), ID: id}.Append(b)
}

// BeginReply is BeginRequest for an answer: KindReply or KindPart.
func BeginReply(b []byte, kind Kind, descriptors int, id uint64) []byte {
	return Header{Kind: kind, Descriptors: uint8(descriptors), ID: id}.Append(b)
}
