package ucx

// Constants of ucp.h and ucp_def.h, version 1.13. A test compares them with
// the headers.
const (
	// The requested version of the interface; later libraries support it, and so
	// does 1.11, whose structures are the same.
	apiMajor = 1
	apiMinor = 11

	paramFeatures        = 1 << 0
	paramWorkersShared   = 1 << 5
	paramEstimatedEps    = 1 << 6
	featureAM            = 1 << 6
	featureRMA           = 1 << 1
	featureWakeup        = 1 << 4
	contextThreadMode    = 1 << 1
	workerThreadMode     = 1 << 0
	workerFlags          = 1 << 5
	workerIgnoreLeak     = 1 << 0
	threadModeSerialized = 1
	threadModeMulti      = 2

	epRemoteAddress  = 1 << 0
	epErrorMode      = 1 << 1
	epErrorHandler   = 1 << 2
	epUserData       = 1 << 3
	epCloseForce     = 1 << 0
	errorModeNone    = 0
	errorModePeer    = 1
	opMemoryType     = 1 << 6
	opFlags          = 1 << 4
	amHandlerID      = 1 << 0
	amHandlerFlags   = 1 << 1
	amHandlerCall    = 1 << 2
	amHandlerArg     = 1 << 3
	amWholeMessage   = 1 << 0
	amSendRendezvous = 1 << 2
	amRendezvous     = 1 << 17
	memoryHost       = 0
	memMapAddress    = 1 << 0
	memMapLength     = 1 << 1
	memMapProt       = 1 << 3
	memMapMemoryType = 1 << 4
	protLocalRead    = 1 << 0
	protLocalWrite   = 1 << 1
	protRemoteRead   = 1 << 8
	protRemoteWrite  = 1 << 9
	logLevelName     = "LOG_LEVEL"
	logLevelDefault  = "warn"
	logLevelQuiet    = "fatal"
	entityNameMax    = 32
	cpuSetWords      = 1024 / 64
	// firstError is UCS_ERR_LAST: as an unsigned word, a request not below it is
	// a status.
	firstError = -100
)

// The statuses of ucs/type/status.h that this package distinguishes.
const (
	statusOK          Status = 0
	statusInProgress  Status = 1
	statusUnreachable Status = -6
	statusNoDevice    Status = -14
	statusBusy        Status = -15
	statusCanceled    Status = -16
)
