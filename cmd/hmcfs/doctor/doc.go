// Package doctor checks what a mount needs to work, and to be fast, and reports what
// is missing in a [Report]. It changes nothing.
//
// All checks look at a [Machine], so that tests can provide their own.
package doctor
