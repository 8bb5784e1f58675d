// Package web serves over TCP what a mount shows to those who watch it, if its options say so:
// the metrics for Prometheus ([Metrics]), and a page with its data ([Page]). Nothing here changes
// the mount.
//
// # Trust
//
// Every process that can connect gets the metrics. The page needs the token that the admin socket
// hands out; a request has it in a header, which no other page can make a browser send.
// A server that listens on this machine alone refuses requests whose Host names another: a page
// that the user has open elsewhere can otherwise reach it by a name that its owner lets stand for
// 127.0.0.1 (DNS rebinding).
//
// # Lock order
//
// places.mu is a leaf.
package web
