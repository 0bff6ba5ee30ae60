package agui

import "unicode"

// missing is the problem of an object that lacks a member that it needs. Serialisers that aren't told otherwise write names
// as their own language has them: where such a spelling of the name is there, the problem says so.
func missing(object []byte, name string) *problem {
	got := "nothing"
	eachMember(object, func(key, _ []byte) bool {
		other := body(key)
		if len(other) > 2*len(name) || !sameWords(string(other), name) {
			return true
		}
		got = `nothing: "` + string(other) + `" isn't its name`
		return false
	})
	return (&problem{want: "a value", got: got}).in(name)
}

// Misspelt is the name of the type that name is another spelling of, such as "text_message_end" or "TextMessageEnd"; "" where
// it is one itself, or none.
func Misspelt(name string) string {
	if _, known := typesByName[name]; known || len(name) > 2*len(typeNames[ThinkingTextMessageContent]) {
		return ""
	}
	for _, known := range &typeNames {
		if known != "" && sameWords(name, known) {
			return known
		}
	}
	return ""
}

// sameWords tells whether two names differ in case, dashes and underscores only.
func sameWords(a, b string) bool { return squash(a) == squash(b) }

func squash(name string) string {
	letters := make([]rune, 0, len(name))
	for _, r := range name {
		if r != '_' && r != '-' {
			letters = append(letters, unicode.ToLower(r))
		}
	}
	return string(letters)
}
