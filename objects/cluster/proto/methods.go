package proto

import "github.com/hmcfs/hmcfs/transport/rpc"

// Version is the version of all bodies. Nodes with different ones have nothing
// to say to each other: MethodHello refuses.
const Version = 5

// The methods. Those of names and attributes change or read the owner's tree;
// Owner is the node that is asked.
const (
	// MethodHello is the first question of a session: Hello → Welcome.
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
	// MethodRemove: RemoveAsk → Invalid, what the asker is to remember no longer.
	// Unlink and rmdir.
	MethodRemove
	// MethodRename: RenameAsk → Invalid, as for MethodRemove. Inside one node, also
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
	// MethodClose: HandleAsk → Attr, that of the file afterwards.
	MethodClose
	// MethodSync: HandleAsk → nothing.
	MethodSync
	// MethodRead: MoveAsk → MoveAnswer. The owner puts the bytes into the
	// asker's memory before it answers.
	MethodRead
	// MethodWrite: MoveAsk → MoveAnswer. The owner gets the bytes from the
	// asker's memory before it answers.
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

	// MethodFindKey: KeyAsk → KeyAnswer. Where there is no index, each node
	// answers for its own keys.
	MethodFindKey
	// MethodListKeys: ListKeysAsk → ListKeysAnswer.
	MethodListKeys
	// MethodKeyInfo: KeyAsk → KeyAnswer, with attributes and blobs.
	MethodKeyInfo
	// MethodDropKey: KeyAsk → nothing.
	MethodDropKey
	// MethodExpireKey: ExpireKeyAsk → nothing.
	MethodExpireKey
	// MethodClaim: ClaimAsk → ClaimAnswer. Begins to receive a publication.
	MethodClaim
	// MethodTake: TakeAsk → nothing. Ends it: received, or given back. Asking
	// again for the same claim has the same answer.
	MethodTake
	// MethodHaveKeys: HaveKeysAsk → HaveKeysAnswer.
	MethodHaveKeys

	// MethodCollect: CollectAsk → nothing. Prepares the owner's part of a
	// collective.
	MethodCollect
	// MethodCollectWait: JobAsk → CollectAnswer. Begins the part where it has
	// not, and waits for its end. With Wait 0 it only says that the part is wanted:
	// one that nobody asks for is dropped.
	MethodCollectWait
	// MethodCollectEnd: JobAsk → nothing. Takes the results, or drops them, and
	// what is still under way.
	MethodCollectEnd
	// MethodSums: SumsAsk → SumsAnswer.
	MethodSums
	// MethodCreateOpen: CreateOpenAsk → OpenAnswer. Create and Open in one. With
	// handle 0 the file was made, and could not be opened.
	MethodCreateOpen

	// MethodMeetKeys: MeetKeysAsk → MeetKeysAnswer. Compares the keys of two nodes
	// that may have used them without asking each other.
	MethodMeetKeys
)

// The notices.
const (
	// NoticeInvalid: Invalid. What the peer may have remembered has changed.
	NoticeInvalid rpc.Method = 0x100 + iota
)
