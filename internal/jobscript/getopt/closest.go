package getopt

// maxWord bounds the words that are compared, since the cost is quadratic.
const maxWord = 64

// Closest returns the name that the user most likely meant by word: the one
// with the fewest single-character insertions, deletions, replacements and
// swaps of neighbours, the first of several, or "" when none is near. Optimal
// string alignment distance; O(names × word²).
func Closest(word string, names []string) string {
	if word == "" || len(word) > maxWord {
		return ""
	}
	best, most := "", max(1, len(word)/3)
	for _, name := range names {
		if len(name) > maxWord {
			continue
		}
		if d := distance(word, name); d <= most {
			best, most = name, d-1
		}
	}
	return best
}

func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
