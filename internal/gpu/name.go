package gpu

import "strings"

// Type returns the short name that users request for a product name: "NVIDIA H100 80GB HBM3" is
// "h100". It drops the maker, the brand, and everything from the first word about form, size or
// edition.
func Type(product string) string {
	words := strings.FieldsFunc(strings.ToLower(product), func(r rune) bool {
		return r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
	var b strings.Builder
	for _, word := range words {
		if makerWord(word) {
			continue
		}
		if b.Len() > 0 && formWord(word) {
			break
		}
		b.WriteString(strings.ReplaceAll(word, ".", ""))
	}
	if b.Len() == 0 {
		return "gpu"
	}
	return b.String()
}

func makerWord(word string) bool {
	switch word {
	case "nvidia", "tesla", "geforce", "quadro", "corporation":
		return true
	}
	return false
}

// formWord reports whether a word is about form, memory or edition: sxm4, pcie, 80gb, hbm3, mig
// 1g.5gb.
func formWord(word string) bool {
	switch word {
	case "pcie", "pg", "nvl", "nvlink", "generation", "laptop", "max", "server", "workstation", "edition",
		"blackwell", "mig", "cnx", "dgx", "display", "with", "gpu":
		return true
	}
	for _, prefix := range []string{"sxm", "hbm", "pg5", "gddr"} {
		if strings.HasPrefix(word, prefix) {
			return true
		}
	}
	digits := strings.TrimLeft(word, "0123456789")
	return len(digits) < len(word) && (digits == "gb" || digits == "g" || digits == "gib")
}
