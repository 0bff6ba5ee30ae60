package agui

import "bytes"

// message is one message of a conversation. While nothing changed it, it is the bytes that it came as; the first
// change opens it up into its members.
type message struct {
	id   string // decoded
	role string
	at   Position // where a client that watches got it
	// legacy says that THINKING_* events made it: a client that watched knows it by an id of its own.
	legacy bool

	// whole is the message as it came, nil once it was opened up. The rest is set only then.
	whole []byte

	rest      []byte // the members that no event changes, `"id":"m1","role":"assistant"`, never empty
	content   contentKind
	body      []byte // contentText: between the quotes, still escaped; only ever appended to
	value     []byte // contentRaw
	doc       *document
	encrypted []byte // raw string, nil where absent
	meta      metadata
	hasCalls  bool

	calls []*toolCall // known also while whole is set

	// head and tail are what stands before and after body, made at need; nil after a change of anything but body.
	head, tail []byte
}

type contentKind uint8

const (
	contentNone     contentKind = iota
	contentText                 // body
	contentRaw                  // value: parts, or whatever else was published
	contentDocument             // doc: an activity's content
)

// toolCall is one call of an assistant message.
type toolCall struct {
	id string

	whole []byte // as message.whole

	rest      []byte // members but function, metadata and encryptedValue: `"id":"c1","type":"function"`
	name      []byte // raw string
	args      []byte // body of the string, still escaped; only ever appended to
	encrypted []byte
	meta      metadata

	head, tail []byte
}

// readMessage makes a message of a checked message object. It keeps raw.
func readMessage(raw []byte) *message {
	m := &message{whole: raw}
	eachMember(raw, func(key, value []byte) bool {
		switch {
		case keyIs(key, "id"):
			m.id = decode(value)
		case keyIs(key, "role"):
			m.role = decode(value)
		case keyIs(key, "toolCalls"):
			m.calls = nil
			if isArray(value) {
				eachElement(value, func(c []byte) bool {
					m.calls = append(m.calls, readCall(c))
					return true
				})
			}
		}
		return true
	})
	if m.role != "assistant" {
		m.calls = nil
	}
	return m
}

func readCall(raw []byte) *toolCall {
	c := &toolCall{whole: raw}
	if id := member(raw, "id"); isString(id) {
		c.id = decode(id)
	}
	return c
}

// open splits a whole message into its members, so that they can change.
func (m *message) open() {
	if m.whole == nil {
		m.head, m.tail = nil, nil
		return
	}
	rest := make([]byte, 0, len(m.whole))
	eachMember(m.whole, func(key, value []byte) bool {
		switch {
		case keyIs(key, "content"):
			m.setContent(value)
		case keyIs(key, "metadata"):
			m.meta = metadata{}
			m.meta.merge(value)
		case keyIs(key, "encryptedValue"):
			m.encrypted = value
		case keyIs(key, "toolCalls") && m.role == "assistant":
			m.hasCalls = true
		default:
			rest = appendMember(rest, key, value)
		}
		return true
	})
	m.rest, m.whole = rest, nil
}

func (m *message) setContent(value []byte) {
	m.body, m.value, m.doc = nil, nil, nil
	switch {
	case m.role == "activity":
		m.content, m.doc = contentDocument, newDocument(value)
	case isString(value):
		m.content, m.body = contentText, bytes.Clone(body(value))
	default:
		m.content, m.value = contentRaw, value
	}
}

// appendText appends a delta. Content that isn't text is replaced, as the client does.
func (m *message) appendText(delta []byte) {
	if m.whole != nil || m.content != contentText {
		m.open()
	}
	if m.content != contentText {
		m.content, m.body, m.value = contentText, nil, nil
		m.head, m.tail = nil, nil
	}
	m.body = append(m.body, delta...)
}

func (m *message) mergeMetadata(value []byte) {
	if value == nil {
		return
	}
	m.open()
	m.meta.merge(value)
}

func (m *message) setEncrypted(value []byte) {
	m.open()
	m.encrypted = value
}

// addCall appends a call to the message.
func (m *message) addCall(c *toolCall) {
	m.open()
	m.hasCalls = true
	m.calls = append(m.calls, c)
}

// call returns the message's first call with the id, or nil.
func (m *message) call(id string) *toolCall {
	for _, c := range m.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

// touch forgets what was made of a message because one of its calls changed.
func (m *message) touch() { m.open() }

// segments appends the message as JSON to dst, as slices that stay as they are whatever happens to the message.
func (m *message) segments(dst [][]byte) [][]byte {
	if m.whole != nil {
		return append(dst, m.whole)
	}
	if m.head == nil {
		m.build()
	}
	dst = append(dst, m.head)
	if n := len(m.body); m.content == contentText && n > 0 {
		dst = append(dst, m.body[:n:n])
	}
	dst = append(dst, m.tail)
	if !m.hasCalls {
		return dst
	}
	dst = append(dst, callsHead)
	for i, c := range m.calls {
		if i > 0 {
			dst = append(dst, comma)
		}
		dst = c.segments(dst)
	}
	return append(dst, callsTail)
}

var (
	comma     = []byte(",")
	callsHead = []byte(`,"toolCalls":[`)
	callsTail = []byte(`]}`)
	bracket   = []byte(`}`)
)

// build makes head and tail. Where the message has calls, its closing bracket comes after them.
func (m *message) build() {
	h := make([]byte, 0, len(m.rest)+64)
	h = append(append(h, '{'), m.rest...)
	var t []byte
	switch m.content {
	case contentNone:
	case contentText:
		h = append(h, `,"content":"`...)
		t = append(t, '"')
	case contentRaw:
		h = append(append(h, `,"content":`...), m.value...)
	case contentDocument:
		if !m.doc.missing() {
			h = append(append(h, `,"content":`...), m.doc.raw()...)
		}
	}
	t = m.meta.appendMember(t)
	if m.encrypted != nil {
		t = append(append(t, `,"encryptedValue":`...), m.encrypted...)
	}
	if !m.hasCalls {
		t = append(t, '}')
	}
	m.head, m.tail = h, t
}

// open splits a whole call into its members, so that they can change.
func (c *toolCall) open() {
	if c.whole == nil {
		c.head, c.tail = nil, nil
		return
	}
	rest := make([]byte, 0, len(c.whole))
	eachMember(c.whole, func(key, value []byte) bool {
		switch {
		case keyIs(key, "function") && isObject(value):
			if n := member(value, "name"); isString(n) {
				c.name = n
			}
			if a := member(value, "arguments"); isString(a) {
				c.args = bytes.Clone(body(a))
			}
		case keyIs(key, "metadata"):
			c.meta = metadata{}
			c.meta.merge(value)
		case keyIs(key, "encryptedValue"):
			c.encrypted = value
		default:
			rest = appendMember(rest, key, value)
		}
		return true
	})
	c.rest, c.whole = rest, nil
}

func (c *toolCall) appendArgs(delta []byte) {
	if c.whole != nil {
		c.open()
	}
	c.args = append(c.args, delta...)
}

func (c *toolCall) segments(dst [][]byte) [][]byte {
	if c.whole != nil {
		return append(dst, c.whole)
	}
	if c.head == nil {
		h := append(append(append(make([]byte, 0, len(c.rest)+64), '{'), c.rest...), `,"function":{"name":`...)
		c.head = append(append(h, c.name...), `,"arguments":"`...)
		t := append([]byte(nil), `"}`...)
		t = c.meta.appendMember(t)
		if c.encrypted != nil {
			t = append(append(t, `,"encryptedValue":`...), c.encrypted...)
		}
		t = append(t, '}')
		c.tail = t
	}
	dst = append(dst, c.head)
	if n := len(c.args); n > 0 {
		dst = append(dst, c.args[:n:n])
	}
	return append(dst, c.tail)
}

// metadata is an open object that merges key by key. The zero value is absent, which is not the same as empty.
type metadata struct {
	present bool
	members []metaMember
}

type metaMember struct {
	name       string // decoded
	key, value []byte // raw
}

// merge folds the checked object into m; the last write of a key wins, whole.
func (m *metadata) merge(object []byte) {
	if !isObject(object) {
		return
	}
	m.present = true
	eachMember(object, func(key, value []byte) bool {
		name := decode(key)
		for i := range m.members {
			if m.members[i].name == name {
				m.members[i].value = value
				return true
			}
		}
		m.members = append(m.members, metaMember{name, key, value})
		return true
	})
}

// appendMember appends `,"metadata":{…}`, or nothing where m is absent.
func (m *metadata) appendMember(dst []byte) []byte {
	if !m.present {
		return dst
	}
	dst = append(dst, `,"metadata":{`...)
	for i, x := range m.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, x.key...), ':'), x.value...)
	}
	return append(dst, '}')
}

// appendMember appends `"key":value`, after a comma where dst has members already.
func appendMember(dst, key, value []byte) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	return append(append(append(dst, key...), ':'), value...)
}
