// Package packages tests what packaging/build.sh makes: the packages are installed, used and
// removed, and the image is run, in root file systems of their own. It also checks the manifests
// of docs/deploy against the types of Kubernetes.
package packages
