// Package doctor looks at what a mount needs and what makes it fast, and says
// what is missing. It changes nothing.
//
// Every look goes through Machine, so that tests have one of their own.
package doctor
