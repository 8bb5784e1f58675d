package web

import (
	"crypto/subtle"
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

// assets are the page: one document with its script and style, which refer to nothing else.
//
//go:embed page
var assets embed.FS

// policy lets the page use what it consists of and the data of this server. No other page may
// contain it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Page returns a handler that serves the page to everyone, and its data to those who have the token.
func Page(token string, data http.Handler) http.Handler {
	files, err := fs.Sub(assets, "page")
	if err != nil {
		panic(err) // the name is valid
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/{$}", "/page.js", "/page.css"} {
		mux.Handle("GET "+path, http.FileServerFS(files))
	}
	mux.Handle("/v1/", admitted(token, data))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.ContentLength != 0 {
			h.Set("Connection", "close") // the body is not read
			http.Error(w, "a request must not have a body", http.StatusBadRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// admitted passes on requests with the token, unless another page has made the browser send them.
func admitted(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" && !strings.EqualFold(origin, "http://"+r.Host) {
			http.Error(w, "the request comes from another page", http.StatusForbidden)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			http.Error(w, "the request comes from another page", http.StatusForbidden)
			return
		}
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "no valid token; open the address that hmcfs page prints", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
