package config

import "fmt"

// didYouMean returns the end of a message that suggests the word nearest to the one
// written, or "" if none is near.
func didYouMean(written string, words []string) string {
	if near := Nearest(written, words); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// Nearest returns the word with the fewest letters different from the one written, and at
// most a third of them; "" if there is none.
func Nearest(written string, words []string) string {
	best, least := "", len(written)/3+2
	for _, w := range words {
		if d := distance(written, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
