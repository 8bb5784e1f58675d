// Package client speaks to the admin socket of a mount. Its types are those
// of package adminapi.
package client
