// Package manifests checks the manifests of docs/deploy against the types of Kubernetes. It is
// here, and not among the tests, for the modules that it needs.
package manifests
