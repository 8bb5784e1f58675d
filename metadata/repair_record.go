package metadata

import "errors"

func (r repairer) corrupt(p Problem) error {
	if p.Key == "" {
		return ErrInvalid
	}
	key := []byte(p.Key)
	value, err := r.get(key, ErrChanged)
	if err != nil {
		return err
	}
	if err := decodable(key, value); err == nil {
		return ErrChanged
	} else if !errors.Is(err, ErrCorrupt) {
		return err
	}
	r.del(key)
	return nil
}

// decodable tries to decode any record that Check decodes.
func decodable(key, value []byte) (err error) {
	switch key[0] {
	case kindInode:
		_, err = decodeRecord(keyIno(key), value)
	case kindDirent:
		_, err = decodeDirent(value)
	case kindLink:
		_, err = decodeLink(value)
	case kindXattr:
		_, err = decodeXattr(value)
	case kindMapping:
		_, err = decodeMapping(keyNumber(key, 1), value)
	case kindBinding:
		_, err = decodeBinding(value)
	case kindExpiry:
		_, _, err = parseExpiry(key, value)
	case kindKey:
		_, err = decodeKeyHolder(value)
	case kindPart:
		_, err = decodeLink(value)
	case kindDevice:
		_, err = decodeDevice("", value)
	}
	return err
}

func (r repairer) danglingKey(p Problem) error {
	h, err := r.keyHolder(p.Key)
	if err != nil {
		return err
	}
	rec, err := r.maybe(h.ino)
	if err != nil {
		return err
	}
	has := ""
	switch {
	case rec == nil:
	case h.part == "":
		has = rec.Key
	default:
		if has, err = r.part(h.ino, h.part); err != nil && !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	if has == p.Key {
		return ErrChanged
	}
	r.del(r.keyString(kindKey, p.Key))
	return nil
}

func (r repairer) missingKey(p Problem, rec *record) error {
	if rec.Key != p.Key {
		return ErrChanged
	}
	owner, err := r.keyHolder(p.Key)
	switch {
	case errors.Is(err, ErrNotExist):
		r.putKey(p.Key, p.Ino)
		return nil
	case err != nil:
		return err
	case owner == keyHolder{ino: p.Ino}:
		return ErrChanged
	}
	rec.Key = ""
	r.putInode(rec)
	return nil
}

// danglingPart recreates the key of a part, or removes the record of the part.
func (r repairer) danglingPart(p Problem) error {
	has, err := r.part(p.Ino, p.Part)
	if err != nil {
		return err
	}
	if has != p.Key {
		return ErrChanged
	}
	rec, err := r.maybe(p.Ino)
	if err != nil {
		return err
	}
	owner, err := r.keyHolder(p.Key)
	switch {
	case rec != nil && err == nil && owner == keyHolder{p.Ino, p.Part}:
		return ErrChanged
	case err != nil && !errors.Is(err, ErrNotExist):
		return err
	case rec != nil && err != nil:
		r.putPart(p.Ino, PartKey{p.Part, p.Key})
		return nil
	}
	r.del(r.partKey(p.Ino, p.Part))
	if rec != nil && rec.Parts > 0 {
		rec.Parts--
		r.putInode(rec)
	}
	return nil
}

func (r repairer) danglingDevice(p Problem) error {
	d, err := r.device(p.Device)
	if err != nil {
		return err
	}
	if d.Ino != p.Ino {
		return ErrChanged
	}
	r.del(r.keyString(kindDevice, string(p.Device)))
	return nil
}

func (r repairer) missingDevice(_ Problem, rec *record) error {
	if _, err := r.device(DeviceName(rec.Name)); !errors.Is(err, ErrNotExist) {
		return errors.Join(err, ErrChanged)
	}
	rec.Device = DeviceName(rec.Name)
	r.putInode(rec)
	r.putDevice(&DeviceRecord{Name: rec.Device, Ino: rec.Ino})
	return nil
}

func (r repairer) danglingBinding(p Problem) error {
	rec, err := r.maybe(p.Ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.hasBinding() {
		return ErrChanged
	}
	r.del(r.key(kindBinding, uint64(p.Ino)))
	return nil
}

func (r repairer) missingBinding(p Problem, rec *record) error {
	if _, err := r.kv.Get(r.key(kindBinding, uint64(p.Ino))); !errors.Is(err, ErrNoKey) {
		return errors.Join(err, ErrChanged)
	}
	if !rec.hasBinding() {
		return ErrChanged
	}
	rec.Bound = BoundLost
	r.putInode(rec)
	return nil
}

func (r repairer) danglingExpiry(p Problem) error {
	rec, err := r.maybe(p.Ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.Expires == p.expires {
		return ErrChanged
	}
	r.deleteExpiry(p.Ino, p.expires)
	return nil
}

func (r repairer) missingExpiry(p Problem, rec *record) error {
	if rec.Expires == (Timespec{}) {
		return ErrChanged
	}
	if _, err := r.kv.Get(r.expiryKey(rec.Expires, p.Ino)); !errors.Is(err, ErrNoKey) {
		return errors.Join(err, ErrChanged)
	}
	r.putExpiry(p.Ino, rec.Expires)
	return nil
}
