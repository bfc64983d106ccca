//! Tables as Parquet files, after the format's specification (apache/parquet-format).
//!
//! zstd, dictionaries, statistics by column chunk. The same rows are the same bytes: no date and no random number is in a file.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::cells::{Cells, Lists, RowGroup, Texts};
use super::{ColumnKind, SCHEMA, Table};

/// Level of zstd: 3 is its own default, and above it time grows faster than files shrink.
const LEVEL: i32 = 3;

/// A Parquet file while it is written. It has no footer, and so no content for any reader, until [`File::finish`].
pub struct File<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> File<W> {
    /// A file of this table, with these facts in its metadata.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn new(out: W, table: Table, facts: &[(&str, String)]) -> Result<File<W>> {
        let schema = Arc::new(parse_message_type(&schema(table))?);
        let fact = |(name, value): &(&str, String)| KeyValue::new(format!("numatop.{name}"), value.clone());
        let version = KeyValue::new("numatop.schema".to_owned(), SCHEMA.to_string());
        let properties = WriterProperties::builder()
            .set_created_by(format!("numatop-ng {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(std::iter::once(version).chain(facts.iter().map(fact)).collect()))
            .build();
        Ok(File { writer: SerializedFileWriter::new(out, schema, Arc::new(properties))? })
    }

    /// Writes a group of rows, unless it is empty.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn write(&mut self, rows: &RowGroup) -> Result<()> {
        if rows.rows() == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for cells in rows.cells() {
            let mut column = group.next_column()?.expect("the schema is made of the same columns");
            write_column(&mut column, cells)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the footer.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn finish(mut self) -> Result<()> {
        self.writer.finish().map(drop)
    }
}

/// The schema of a table in the notation of the format. Each value may be missing.
pub fn schema(table: Table) -> String {
    let column = |(name, kind): (&str, ColumnKind)| match kind {
        ColumnKind::Int => format!("OPTIONAL INT64 {name};"),
        ColumnKind::Time => format!("OPTIONAL INT64 {name} (TIMESTAMP(MICROS,true));"),
        ColumnKind::Float => format!("OPTIONAL DOUBLE {name};"),
        ColumnKind::Flag => format!("OPTIONAL BOOLEAN {name};"),
        ColumnKind::Text => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
        ColumnKind::List => format!(
            "REQUIRED group {name} (LIST) {{ REPEATED group list {{ REQUIRED BYTE_ARRAY element (STRING); }} }}"
        ),
    };
    let columns: Vec<String> = table.columns().into_iter().map(column).collect();
    format!("message {} {{ {} }}", table.name(), columns.join(" "))
}

fn write_column(column: &mut SerializedColumnWriter<'_>, cells: &Cells) -> Result<()> {
    match cells {
        Cells::Ints(ints) => put::<Int64Type>(column, &ints.values(), &levels(ints.present())),
        Cells::Floats(floats) => put::<DoubleType>(column, floats.values(), &levels(floats.present())),
        Cells::Flags(flags) => put::<BoolType>(column, flags.values(), &levels(flags.present())),
        Cells::Texts(texts) => write_texts(column, texts),
        Cells::Lists(lists) => write_lists(column, lists),
    }
}

fn put<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: &[T::T], levels: &[i16]) -> Result<()> {
    column.typed::<T>().write_batch(values, Some(levels), None)?;
    Ok(())
}

/// Definition levels: 1 for a value.
fn levels(present: &[bool]) -> Vec<i16> {
    present.iter().map(|present| i16::from(*present)).collect()
}

/// The bytes of each different text: rows share them.
fn shared(texts: &[Arc<str>]) -> Vec<ByteArray> {
    texts.iter().map(|text| ByteArray::from(text.as_bytes().to_vec())).collect()
}

fn write_texts(column: &mut SerializedColumnWriter<'_>, texts: &Texts) -> Result<()> {
    let different = shared(texts.texts());
    let values: Vec<ByteArray> =
        texts.numbers().iter().flatten().map(|number| different[*number as usize].clone()).collect();
    let levels: Vec<i16> = texts.numbers().iter().map(|number| i16::from(number.is_some())).collect();
    put::<ByteArrayType>(column, &values, &levels)
}

fn write_lists(column: &mut SerializedColumnWriter<'_>, lists: &Lists) -> Result<()> {
    let different = shared(lists.texts());
    let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for row in lists.rows() {
        // An empty list is one entry without a value.
        definition.extend(if row.is_empty() { vec![0] } else { vec![1; row.len()] });
        repetition.extend((0..row.len().max(1)).map(|at| i16::from(at > 0)));
        values.extend(row.iter().map(|number| different[*number as usize].clone()));
    }
    column.typed::<ByteArrayType>().write_batch(&values, Some(&definition), Some(&repetition))?;
    Ok(())
}
