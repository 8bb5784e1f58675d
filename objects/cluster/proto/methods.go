package proto

import "github.com/hmcfs/hmcfs/transport/rpc"

// Version is the version of all bodies. Nodes with different versions cannot communicate:
// MethodHello is refused.
const Version = 7

// The methods. Those for names and attributes change or read the owner's tree; the owner is
// the node that receives the request.
const (
	// MethodHello is the first request of a session: Hello → Welcome.
	MethodHello rpc.Method = 1 + iota
	// MethodLookup: LookupAsk → Attr.
	MethodLookup
	// MethodAttr: InoAsk → Attr.
	MethodAttr
	// MethodReadDir: ReadDirAsk → ReadDirAnswer.
	MethodReadDir
	// MethodCreate: CreateAsk → Attr.
	MethodCreate
	// MethodLink: LinkAsk → Attr.
	MethodLink
	// MethodRemove: RemoveAsk → Invalid, the cached answers that the requester must drop. It
	// implements unlink and rmdir.
	MethodRemove
	// MethodRename: RenameAsk → Invalid, as for MethodRemove. Within one node, including
	// between its devices, and not into or out of publish/.
	MethodRename
	// MethodSetAttr: SetAttrAsk → Attr.
	MethodSetAttr
	// MethodGetXattr: XattrAsk → XattrAnswer.
	MethodGetXattr
	// MethodListXattr: InoAsk → ListXattrAnswer.
	MethodListXattr
	// MethodSetXattr: XattrAsk → nothing.
	MethodSetXattr
	// MethodRemoveXattr: XattrAsk → nothing.
	MethodRemoveXattr
	// MethodStatFS: InoAsk → StatFSAnswer.
	MethodStatFS

	// MethodOpen: OpenAsk → OpenAnswer.
	MethodOpen
	// MethodClose: HandleAsk → Attr, the attributes of the file afterwards.
	MethodClose
	// MethodSync: HandleAsk → nothing.
	MethodSync
	// MethodRead: MoveAsk → MoveAnswer. The owner puts the bytes into the requester's memory
	// before it answers.
	MethodRead
	// MethodWrite: MoveAsk → MoveAnswer. The owner gets the bytes from the requester's memory
	// before it answers.
	MethodWrite
	// MethodAllocate: AllocateAsk → Attr.
	MethodAllocate
	// MethodSeek: SeekAsk → SeekAnswer.
	MethodSeek
	// MethodCopy: CopyAsk → MoveAnswer. Between two files of the owner.
	MethodCopy
	// MethodPull: PullAsk → MoveAnswer. The owner reads a file of a third
	// node into one of its own.
	MethodPull

	// MethodFindKey: KeyAsk → KeyAnswer. Without an index, each node answers for its own keys.
	MethodFindKey
	// MethodListKeys: ListKeysAsk → ListKeysAnswer.
	MethodListKeys
	// MethodKeyInfo: KeyAsk → KeyAnswer, with attributes and blobs.
	MethodKeyInfo
	// MethodDropKey: KeyAsk → nothing.
	MethodDropKey
	// MethodExpireKey: ExpireKeyAsk → nothing.
	MethodExpireKey
	// MethodClaim: ClaimAsk → ClaimAnswer. Starts to receive a publication.
	MethodClaim
	// MethodTake: TakeAsk → nothing. Ends a claim: received, or given back. Repeated for the
	// same claim it has the same answer.
	MethodTake
	// MethodHaveKeys: HaveKeysAsk → HaveKeysAnswer.
	MethodHaveKeys

	// MethodCollect: CollectAsk → nothing. Prepares the owner's part of a
	// collective.
	MethodCollect
	// MethodCollectWait: JobAsk → CollectAnswer. Starts the part if it has not started, and
	// waits for its end. With Wait 0 it only confirms that the part is still needed: a part
	// that no request asks for is dropped.
	MethodCollectWait
	// MethodCollectEnd: JobAsk → nothing. Commits the results, or drops them and whatever is
	// still in progress.
	MethodCollectEnd
	// MethodSums: SumsAsk → SumsAnswer.
	MethodSums
	// MethodCreateOpen: CreateOpenAsk → OpenAnswer. Create and Open in one. Handle 0 means
	// that the file was created, but could not be opened.
	MethodCreateOpen

	// MethodCompareKeys: CompareKeysAsk → CompareKeysAnswer. Compares the keys of two nodes
	// that may have used them without asking each other.
	MethodCompareKeys

	// MethodReceived: ReceivedAsk → ReceivedAnswer. Asks, after the death of a daemon, whether it had received a
	// publication, and ends its claims of that key.
	MethodReceived
)

// The notices.
const (
	// NoticeInvalid: Invalid. Answers that the peer may have cached have changed.
	NoticeInvalid rpc.Method = 0x100 + iota
)
